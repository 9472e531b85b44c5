"""Every error Stepwell raises on purpose, in one tree, split by who must act.

StepwellError
├── DefinitionError          the graph is wrong; nothing has run      → fix the code
├── RunError                 this run cannot go on; carries run_id    → look at the run
│   ├── HandlerFailed
│   ├── HandlerTimeout
│   ├── StepFailed
│   ├── StepChanged          another call than the one whose result is stored  → see its remedies
│   ├── RoutingFailed
│   ├── SuperstepLimit
│   ├── StateConflict
│   ├── InputMismatch
│   ├── RequestError         carries request_id                       → answer again
│   │   ├── UnknownRequest
│   │   ├── ResponseRejected
│   │   └── RequestExpired
│   └── PrivateMissing
└── DurabilityError          what is stored cannot be trusted or reached  → operate
    ├── CheckpointMissing
    ├── CheckpointCorrupt
    │   └── CannotUnseal     its key was not given                     → give the key
    ├── CommitConflict
    ├── RunBusy
    ├── GraphChanged         carries the differences
    │   └── MigrationFailed
    ├── StoreUnavailable
    │   └── NewerFormat      a newer Stepwell has written it           → upgrade
    └── CodecError           carries the path of the value
"""

from __future__ import annotations

from collections.abc import Sequence


class StepwellError(Exception):
    """Base of every error raised on purpose."""


class DefinitionError(StepwellError):
    """A definition was refused. `problems` holds every problem found, one sentence each."""

    def __init__(self, problems: str | Sequence[str]) -> None:
        self.problems: tuple[str, ...] = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(f"- {p}" for p in self.problems) if len(self.problems) > 1 else self.problems[0])


class RunError(StepwellError):
    """This run cannot go on. `run_id` says which one."""

    def __init__(self, message: str, *, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(message)


class HandlerFailed(RunError):
    """A handler raised; its exception is the `__cause__`. What its siblings finished is kept."""

    def __init__(self, message: str, *, run_id: str, executor_id: str) -> None:
        self.executor_id = executor_id
        super().__init__(message, run_id=run_id)


class HandlerTimeout(RunError, TimeoutError):
    """A handler took longer than it may, or gave no sign of life for longer than it may."""

    abandoned = False  # the handler is a plain function whose thread could not be stopped

    def __init__(self, message: str, *, run_id: str, executor_id: str) -> None:
        self.executor_id = executor_id
        super().__init__(message, run_id=run_id)


class StepFailed(RunError):
    """A step that had failed before was asked for again, and its error was remembered but can be made no more."""

    def __init__(self, message: str, *, run_id: str, executor_id: str) -> None:
        self.executor_id = executor_id
        super().__init__(message, run_id=run_id)


class StepChanged(RunError):
    """A step was asked for at a place where the result of another call is stored: other arguments, another function."""

    def __init__(self, message: str, *, run_id: str, executor_id: str, stored: str, asked: str) -> None:
        self.executor_id = executor_id
        self.stored, self.asked = stored, asked  # both calls, as `charge(Order#3f0c9a1be27d)`: digests, no values
        super().__init__(message, run_id=run_id)


class RoutingFailed(RunError):
    """A message has no taker, or a condition or selection could not decide."""


class SuperstepLimit(RunError):
    """The run took as many supersteps as it may since the last message from outside."""


class StateConflict(RunError):
    """Two executors wrote one state key in one superstep, and no reducer joins them."""


class InputMismatch(RunError):
    """A run of that id was started with another input."""


class RequestError(RunError):
    """An answer was not accepted, or never came. `request_id` says to which question."""

    def __init__(self, message: str, *, run_id: str, request_id: str) -> None:
        self.request_id = request_id
        super().__init__(message, run_id=run_id)


class UnknownRequest(RequestError):
    """The run asks no such question."""


class ResponseRejected(RequestError):
    """The answer is not of the type asked for, or the question was answered already."""


class RequestExpired(RequestError):
    """The deadline passed before an answer came."""


class PrivateMissing(RunError, KeyError):
    """A private value was read that this call of `run` was not given."""

    __str__ = Exception.__str__  # KeyError would show the repr of the sentence


class DurabilityError(StepwellError):
    """What is stored cannot be trusted or reached."""


class CheckpointMissing(DurabilityError):
    """No such checkpoint or run is stored."""


class CheckpointCorrupt(DurabilityError):
    """A stored record is damaged, or is not what its name says."""


class CannotUnseal(CheckpointCorrupt):
    """What is stored was sealed with a key that was not given, or is not sealed where a key was given."""


class CommitConflict(DurabilityError):
    """Someone else moved the run since it was read: this process must stop driving it."""


class RunBusy(DurabilityError):
    """Someone alive is driving the run. `owner` says who."""

    def __init__(self, message: str, *, run_id: str, owner: str, holder: object = None) -> None:
        self.run_id, self.owner, self.holder = run_id, owner, holder
        super().__init__(message)


class GraphChanged(DurabilityError):
    """This code cannot go on with the stored run. `differences` says in words what the run needs and does not find."""

    def __init__(self, message: str, *, differences: Sequence[str]) -> None:
        self.differences = tuple(differences)
        super().__init__(message)


class MigrationFailed(GraphChanged):
    """A migration could not be applied to the stored run. Nothing was changed."""


class StoreUnavailable(DurabilityError):
    """The store could not be reached or could not write."""


class NewerFormat(StoreUnavailable):
    """What is stored is of a format that only a newer Stepwell knows. It was left as it is."""


class CodecError(DurabilityError):
    """A value cannot be written, or stored bytes cannot be read. `path` says where in the value."""

    def __init__(self, message: str, *, path: str) -> None:
        self.message, self.path = message, path
        super().__init__(f"{message}, at `{path}`")
