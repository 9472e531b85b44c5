"""How far a run has come in its graph. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from stepwell.cli.views.text import pluralise, printable
from stepwell.kernel.lifecycle import drop_undone
from stepwell.model.checkpoint import Checkpoint
from stepwell.model.commit import Commit


@dataclass(frozen=True)
class RunProgress:
    """How often each executor was called, which ones are next, and which were never called."""

    iteration: int
    called: dict[str, int]
    next: tuple[str, ...]
    asking: tuple[str, ...]
    untouched: tuple[str, ...]
    complete: bool  # whether the history is complete from the start of the run
    since: int  # the first commit that was counted

    def as_dict(self) -> dict[str, Any]:
        return {
            "iteration": self.iteration,
            "called": self.called,
            "next": list(self.next),
            "asking": list(self.asking),
            "not_called": list(self.untouched),
            "history_is_whole": self.complete,
            "counted_since": self.since,
        }

    def describe(self) -> Iterator[str]:
        """Yield the progress as lines for a person."""
        yield f"progress: {pluralise(self.iteration, 'superstep')}"
        if self.called:
            times = [f"{id} ({pluralise(n, 'time')})" for id, n in self.called.items()]
            scope = "" if self.complete else f" since commit {self.since}, in the commits that are stored"
            yield f"  called: {_join(times)}{scope}"
        if self.next:
            yield f"  next: {_join(self.next)}"
        if self.asking:
            yield f"  waiting for a response: {_join(self.asking)}"
        if self.untouched and self.complete:
            yield f"  not called: {_join(self.untouched)}"


def _join(names: Sequence[str]) -> str:
    return printable(", ".join(names))


def compute_progress(at: Checkpoint, commits: Sequence[Commit]) -> RunProgress:
    """Compute the progress at a checkpoint from the commits that lead to it."""
    # Calls that a restore has undone do not count.
    called = Counter(delivery.executor for commit in drop_undone(commits) for delivery in commit.done)
    following = dict.fromkeys(taker for message in at.messages for taker in message.takers)
    asking = dict.fromkeys(request.executor for request in at.requests.values())
    executors = [str(id) for id in at.header.signature.get("executors", ())]
    # Pruned commits leave gaps in the numbers.
    all_kept = [commit.number for commit in commits] == list(range(at.number + 1))
    # The calls before a fork are in the history of its parent, which is not read here.
    complete = all_kept and at.header.parent_run is None
    untouched = tuple(id for id in executors if id not in called and id not in following and id not in asking)
    since = commits[0].number if commits else at.number
    return RunProgress(
        at.iteration,
        dict(called),
        next=tuple(following),
        asking=tuple(asking),
        untouched=untouched,
        complete=complete,
        since=since,
    )
