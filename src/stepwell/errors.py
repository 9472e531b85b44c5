"""The errors that Stepwell raises on purpose, in one tree, split by who must act.

`declarative` and `admin` add subclasses of their own.

StepwellError
├── DefinitionError          the graph is wrong; also a ValueError       → fix the code
├── RunError                 this run cannot continue; has a run_id      → look at the run
│   ├── HandlerFailed
│   ├── HandlerTimeout
│   ├── StepFailed
│   ├── StepChanged          the stored result belongs to another call   → see its message
│   ├── RoutingFailed
│   ├── SuperstepLimit
│   ├── StateConflict
│   ├── InputMismatch
│   ├── RunSetAside          its drivers died one after the other        → look at their logs
│   ├── RequestError         has a request_id                            → respond again
│   │   ├── UnknownRequest
│   │   ├── ResponseRejected
│   │   └── RequestExpired
│   └── PrivateMissing
└── DurabilityError          stored data cannot be trusted or reached    → fix the storage or the deployment
    ├── CheckpointMissing
    ├── CheckpointCorrupt
    │   └── CannotUnseal     the key is missing or wrong                 → provide the key
    ├── CommitConflict
    ├── RunBusy
    ├── GraphChanged         has the differences
    │   └── MigrationFailed
    ├── StoreUnavailable
    │   └── NewerFormat      written by a newer Stepwell                 → upgrade
    └── CodecError           has the path of the value
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from stepwell.error_ids import ErrorId


class StepwellError(Exception):
    """Base class of every error that Stepwell raises on purpose. `id` is what `stepwell explain` takes."""

    id: ClassVar[str] = ErrorId.StepwellError

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # A class of somebody else has the id of its base, whatever its name is.
        if cls.__module__.startswith("stepwell."):
            cls.id = ErrorId[cls.__name__]


class DefinitionError(StepwellError, ValueError):
    """A definition is invalid. `problems` lists every problem found, one sentence each."""

    def __init__(self, problems: str | Sequence[str]) -> None:
        self.problems: tuple[str, ...] = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(f"- {p}" for p in self.problems) if len(self.problems) > 1 else self.problems[0])


class RunError(StepwellError):
    """A run cannot continue. `run_id` says which one."""

    def __init__(self, message: str, *, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(message)


class HandlerFailed(RunError):
    """A handler raised an exception, which is the `__cause__`. The outcomes of its siblings are kept."""

    def __init__(self, message: str, *, run_id: str, executor_id: str) -> None:
        self.executor_id = executor_id
        super().__init__(message, run_id=run_id)


class HandlerTimeout(RunError, TimeoutError):
    """A handler exceeded its `timeout`, or gave no sign of life for its `idle_timeout`."""

    # True if the handler is a plain function: its thread cannot be stopped and may still be working
    abandoned = False

    def __init__(self, message: str, *, run_id: str, executor_id: str) -> None:
        self.executor_id = executor_id
        super().__init__(message, run_id=run_id)


class StepFailed(RunError):
    """A step failed in the past with a remembered error that cannot be recreated, only described."""

    def __init__(self, message: str, *, run_id: str, executor_id: str) -> None:
        self.executor_id = executor_id
        super().__init__(message, run_id=run_id)


class StepChanged(RunError):
    """A step is called where the stored result belongs to another call: another function, or other arguments."""

    def __init__(self, message: str, *, run_id: str, executor_id: str, stored: str, asked: str) -> None:
        self.executor_id = executor_id
        # Both calls in the form `charge(Order#3f0c9a1be27d)`: digests instead of values, which may be secret
        self.stored, self.asked = stored, asked
        super().__init__(message, run_id=run_id)


class RoutingFailed(RunError):
    """Nobody receives a message, or a condition or selection failed."""


class SuperstepLimit(RunError):
    """The run took the maximum number of supersteps since the last message from outside."""


class StateConflict(RunError):
    """Two executors wrote one state key in one superstep, and no reducer combines the values."""


class InputMismatch(RunError):
    """A run with this id exists and was started with another input."""


class RunSetAside(RunError):
    """The processes that drove the run died again and again without a commit, so it is driven no more."""


class RequestError(RunError):
    """A response was not accepted, or never came. `request_id` says to which request."""

    def __init__(self, message: str, *, run_id: str, request_id: str) -> None:
        self.request_id = request_id
        super().__init__(message, run_id=run_id)


class UnknownRequest(RequestError):
    """The run has no request with this id."""


class ResponseRejected(RequestError):
    """The response is not of the requested type, or the request already has a response."""


class RequestExpired(RequestError):
    """The deadline of a request passed without a response."""


class PrivateMissing(RunError, KeyError):
    """A handler read a private value that was not passed to this call of `run`."""

    # KeyError would show the repr of the message
    __str__ = Exception.__str__


class DurabilityError(StepwellError):
    """Stored data cannot be trusted or reached."""


class CheckpointMissing(DurabilityError):
    """The checkpoint or run is not in the store."""


class CheckpointCorrupt(DurabilityError):
    """A stored record is damaged, or is not the one that its key names."""


class CannotUnseal(CheckpointCorrupt):
    """A record is sealed with a key that is not available, or is not sealed although a key is configured."""


class CommitConflict(DurabilityError):
    """Another process moved the run since it was read: this process must stop driving it."""


class RunBusy(DurabilityError):
    """Another live process is driving the run. `owner` says which."""

    def __init__(self, message: str, *, run_id: str, owner: str, holder: object = None) -> None:
        self.run_id, self.owner, self.holder = run_id, owner, holder
        super().__init__(message)


class GraphChanged(DurabilityError):
    """This code cannot resume the stored run. `differences` lists what the run needs and does not find.

    `suggestions` says what the missing parts may have become, each with the migration that would declare it.
    """

    def __init__(self, message: str, *, differences: Sequence[str], suggestions: Sequence[str] = ()) -> None:
        self.differences, self.suggestions = tuple(differences), tuple(suggestions)
        super().__init__(message)


class MigrationFailed(GraphChanged):
    """A migration could not be applied to a stored run. Nothing was changed."""


class StoreUnavailable(DurabilityError):
    """The store cannot be reached, or cannot write."""


class NewerFormat(StoreUnavailable):
    """Stored data is in a format that only a newer Stepwell knows. Nothing was changed."""


class CodecError(DurabilityError):
    """A value cannot be encoded, or stored bytes cannot be decoded. `path` says where in the value."""

    def __init__(self, message: str, *, path: str) -> None:
        self.message, self.path = message, path
        super().__init__(f"{message}, at `{path}`")
