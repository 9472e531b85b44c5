"""The command that moves a run on. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepwell.model.checkpoint import RunHeader

if TYPE_CHECKING:
    from stepwell.admin.overview.run_overview import RunOverview

CODE = "MODULE:WORKFLOW"  # stands for the code of a run that was not started from the command line


@dataclass(frozen=True, slots=True)
class SuggestedCommand:
    """A command of `stepwell`. Its arguments may start with a dash, and are no options for that."""

    name: str
    arguments: tuple[str, ...]
    options: tuple[str, ...] = ()

    def to_list(self) -> list[str]:
        """Return the words of the command line."""
        return ["stepwell", self.name, *self.options, "--", *self.arguments]

    def explain(self, overview: RunOverview) -> Iterator[str]:
        """Yield what the word in capitals stands for, if there is one."""
        if CODE in self.arguments:
            yield f"      {CODE} is the code of {overview.driven.header.workflow}, such as shop.orders:workflow"


def command_of(overview: RunOverview) -> SuggestedCommand | None:
    """Return the command that a person would want next; None if there is nothing to do, as a worker takes the run."""
    at, run = overview.at, overview.run
    if not overview.is_head:
        return SuggestedCommand("fork", (f"{at.run_id}@{at.number}",))
    # The run of a sub-workflow is driven by its caller, which also asks its questions.
    target = overview.driven.run_id
    unanswered = [id for id in overview.requests if id not in overview.pending]
    match run.standing:
        # A resume would undo the cancellation, which somebody wanted.
        case "completed" | "cancelled":
            return SuggestedCommand("events", (at.run_id,))
        case "running":
            return SuggestedCommand("tail", (at.run_id,), ("--follow",))
        case "waiting" if unanswered and at.header.caller is None:
            return SuggestedCommand("respond", (at.run_id, unanswered[0]))
        case "waiting" if unanswered:
            return SuggestedCommand("show", (target,))
        case "failed" if overview.workers:
            return SuggestedCommand("retry", (target,))
    return None if overview.workers else resume_command(overview.driven.header)


def resume_command(header: RunHeader) -> SuggestedCommand:
    """Return the command that resumes a run, with the code that the command line started it with, if it did."""
    code, *options = header.code or (CODE,)
    return SuggestedCommand("resume", (header.run_id, code), tuple(options))
