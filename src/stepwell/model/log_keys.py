"""The superstep log: what is kept of a superstep that is not committed yet, and its keys."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from stepwell.model.event import WorkflowErrorDetails
from stepwell.model.message import Outcome
from stepwell.model.payload import Payload
from stepwell.model.request import AnswerRecord, Request
from stepwell.model.timing import CallTime


class LogEntry(msgspec.Struct, frozen=True):
    """An entry of the superstep log: a timer, a failed attempt and when the next is due, or a step's result."""

    due: str
    failure: WorkflowErrorDetails | None = None
    final: bool = False  # no further attempt is made
    # the result of a step; with a failure, the arguments of its error
    value: Payload | None = None
    # what the step called: the name of the function and digests of its arguments
    call: str | None = None
    # a question of `ctx.ask`, or a request of a sub-workflow run at work; or the response to a question, as it is
    # used from then on
    request: Request | None = None
    answer: AnswerRecord | None = None
    # of the step that succeeded
    time: CallTime | None = None
    attempts: int = 1


def timer_key(delivery: str, number: int, branch: str = "") -> str:
    return f"{delivery}/timer/{number}{_in_branch(branch)}"


def attempt_key(delivery: str, number: int) -> str:
    return f"{delivery}/attempt/{number}"


def ask_key(delivery: str, number: int, branch: str = "") -> str:
    return f"{delivery}/ask/{number}{_in_branch(branch)}"


def child_request_key(delivery: str, request_id: str) -> str:
    """Return the key of a request of a sub-workflow run that has not come to rest."""
    return f"{delivery}/request/{request_id}"


def closed_request_key(asked: str) -> str:
    """Return the key that says that a sub-workflow run has closed a request itself."""
    return asked.replace("/request/", "/closed/", 1)


def delivery_of(key: str) -> str:
    """Return the delivery that an entry belongs to."""
    return key.partition("/")[0]


def answer_log_key(asked: str) -> str:
    """Return the key under which the answer to a question is fixed, or, without one, that it has expired."""
    return asked.replace("/ask/", "/answer/", 1)


def rejection_log_key(asked: str, count: str) -> str:
    """Return the key of a response that was rejected, of so many before it."""
    return f"{asked.replace('/ask/', '/rejected/', 1)}/{count}"


def step_key(delivery: str, name: str, number: int, branch: str = "") -> str:
    """Return the key of a step: its name, its branch, and how many steps of that name the branch made before."""
    return f"{delivery}/step/{number}{_in_branch(branch)}/{name}"


def explicit_step_key(delivery: str, name: str, digest: str) -> str:
    """Return the key of a step that the caller identifies by an explicit key, given here as its digest."""
    return f"{delivery}/step/={digest}/{name}"


def mark_in_step(branch: str) -> str:
    """Return the id of a branch inside a step."""
    return f"^{branch}"


class StepPlace(msgspec.Struct, frozen=True):
    """Where a step was made, as its key says."""

    name: str
    # of the branch that made it, empty for the handler itself; None if the caller identifies the step
    branch: str | None

    @property
    def is_in_step(self) -> bool:
        """Whether another step made it."""
        return self.branch is not None and self.branch.startswith("^")


def read_step_key(key: str) -> StepPlace | None:
    """Return where a step was made; None for the key of anything else."""
    _, _, rest = key.partition("/")
    kind, _, rest = rest.partition("/")
    number, _, name = rest.partition("/")
    if kind != "step":
        return None
    return StepPlace(name, None if number.startswith("=") else number.partition("@")[2])


def _in_branch(branch: str) -> str:
    # no branch means the handler itself
    return f"@{branch}" if branch else ""


class RecalledLog(msgspec.Struct, frozen=True):
    """The superstep log as it is read back: what was done in a superstep that is not committed yet."""

    outcomes: Mapping[str, Outcome] = {}  # by delivery
    # by timer_key, attempt_key or step_key
    entries: Mapping[str, LogEntry] = {}

    @property
    def asked(self) -> dict[str, Request]:
        """The requests of its entries, by id: questions of handlers, and those of sub-workflow runs at work."""
        return {entry.request.id: entry.request for entry in self.entries.values() if entry.request is not None}
