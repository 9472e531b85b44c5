"""The commits of a run in short, as a strip or a list shows them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stepwell.admin.overview.run_overview import RunOverview
from stepwell.declarative.stored_run import without_conductor
from stepwell.model.commit import Commit
from stepwell.model.status_words import status_word


@dataclass(frozen=True, slots=True)
class CommitItem:
    """One commit of a run. `seconds` is how long its longest handler call took; None if it has none.

    `by` is who caused it: who started or moved the run, or who gave the responses that it applied.
    """

    number: int
    at: str
    kind: str
    status: str
    executors: tuple[str, ...]
    seconds: float | None
    by: str | None
    messages: int  # in flight after it

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return {
            "number": self.number,
            "at": self.at,
            "kind": self.kind,
            "status": self.status,
            "executors": list(self.executors),
            "seconds": self.seconds,
            "by": self.by,
            "messages": self.messages,
        }


def commit_items(overview: RunOverview) -> list[CommitItem]:
    """Return the recent commits of a run, oldest first; of named agents, only what their nodes did."""
    commits = map(without_conductor, overview.commits) if overview.of_named_agents else overview.commits
    return [*map(_item_of, commits)]


def _item_of(commit: Commit) -> CommitItem:
    times = [*(done.time for done in commit.done), *(failure.time for failure in commit.failures)]
    executors = [*(done.executor for done in commit.done), *(failure.executor_id for failure in commit.failures)]
    return CommitItem(
        commit.number,
        commit.stamp.at,
        kind=commit.kind.value,
        status=status_word(commit.status, wake=commit.wake),
        executors=tuple(dict.fromkeys(filter(None, executors))),
        seconds=max((time.seconds for time in times if time is not None), default=None),
        by=commit.by or ", ".join(dict.fromkeys(answer.by for answer in commit.answers if answer.by)) or None,
        messages=len(commit.messages or ()),
    )
