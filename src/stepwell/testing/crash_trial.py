"""Runs of one workflow for `crash_everywhere`, with or without a fault, and their results."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import Any, Generic, TypeVar

from stepwell.error_ids import ErrorId
from stepwell.model.checkpoint import Retention
from stepwell.model.event import WorkflowEvent, WorkflowRunState
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.port import Store
from stepwell.testing.clock import FakeClock
from stepwell.testing.faults.wrapped_store import Call, WrappedStore
from stepwell.testing.human import ScriptedHuman
from stepwell.testing.ledger import Ledger
from stepwell.workflows.result import WorkflowRunResult
from stepwell.workflows.workflow import Workflow

Responder = Callable[[WorkflowEvent], Any]
"""Returns the answer to a `request_info` event; may be async. A `ScriptedHuman` is one."""

_RUN = "crash-everywhere"
_MOST_PAUSES = 1000  # of a run without faults
_MORE_PAUSES = 10  # a run with a fault may pause so many times more; then it is considered endless


class NotTheSame(AssertionError):
    """A run that crashed and was resumed gave another result, or repeated what was committed."""

    id = ErrorId.NotTheSame


@dataclass
class TrialResult:
    """The result of a run."""

    outputs: list[Any]
    state: dict[str, Any]
    status: str
    tags: dict[str, str]
    effects: list[Any]

    def differences(self, other: TrialResult) -> list[str]:
        """List the fields that differ, one sentence each."""
        pairs = ((name, getattr(self, name), getattr(other, name)) for name in vars(self))
        return [f"{name}: {mine!r} instead of {theirs!r}" for name, mine, theirs in pairs if mine != theirs]


DeliveryKey = tuple[str | None, str | None]


@dataclass
class Witness:
    """Observes durable deliveries and handler calls: no durable one is called again."""

    durable: set[DeliveryKey] = field(default_factory=set)
    steps: set[DeliveryKey] = field(default_factory=set)  # steps with a durable result
    called: list[DeliveryKey] = field(default_factory=list)
    broken: list[DeliveryKey] = field(default_factory=list)
    before: frozenset[DeliveryKey] = frozenset()  # deliveries that were durable when the current drive started
    drives: int = 0
    endless: bool = False  # it was resumed far too often

    def begin(self) -> None:
        """Note the start of another drive of the run."""
        self.before = frozenset(self.durable)
        self.drives += 1

    def add_step(self, step: DeliveryKey) -> None:
        """Note that the result of a step is durable.

        A second time means that the step was repeated.
        """
        if step in self.steps:
            self.broken.append(step)
        self.steps.add(step)

    def complaint(self) -> str | None:
        """Return what is wrong regardless of the result, None if nothing is."""
        if self.broken:
            return f"repeated what was durable: {self.broken}"
        return f"does not end, although it was resumed {self.drives} times" if self.endless else None

    def observe(self, event: WorkflowEvent) -> None:
        """Note a handler call."""
        if event.type == "executor_invoked":
            delivery = (event.run_id, event.delivery)
            self.called.append(delivery)
            # The stream does not hold up a sub-workflow: by the time we see that its handler was
            # called, the outcome may be durable. So its calls are compared with what was durable
            # when the drive started.
            if delivery in (self.before if event.path else self.durable):
                self.broken.append(delivery)


class WatchedStore(WrappedStore):
    """Reports durable outcomes and steps to a witness."""

    def __init__(self, inner: Store, witness: Witness) -> None:
        super().__init__(inner)
        self._witness = witness

    async def write(self, name: str, args: tuple[Any, ...], call: Call) -> Any:
        result = await call()
        if name == "append":
            record = args[0]
            done = json.loads(record.body).get("done", ())
            self._witness.durable |= {(record.entry.run_id, outcome["delivery"]) for outcome in done}
        elif is_outcome(name, args):
            self._witness.durable.add((args[0], args[2]))
        elif name == "write_log" and "/step/" in args[2]:
            self._witness.add_step((args[0], args[2]))
        return result


def is_outcome(name: str, args: tuple[Any, ...]) -> bool:
    """Return whether a write to a store logs the outcome of a delivery."""
    return name == "write_log" and "/" not in args[2]


S = TypeVar("S", bound=Store)


@dataclass(frozen=True)
class TrialRun(Generic[S]):
    """A run from its start to its end, resumed if the store was faulty."""

    store: S
    result: TrialResult
    witness: Witness
    raised: BaseException | None  # by the faulty store


@dataclass
class Trial:
    """A workflow and the arguments with which it is run again and again."""

    workflow: Workflow
    message: Any
    answer: Responder | None
    ledger: Ledger | None
    store: Callable[[], Store]
    private: dict[str, Any]
    retention: Retention
    pauses: int = _MOST_PAUSES

    async def run_through(self) -> TrialRun[WatchedStore]:
        """Run without faults."""
        through = await self.run(lambda sound: sound, ())
        if complaint := through.witness.complaint():
            raise NotTheSame(f"without any fault, the run {complaint}")
        self.pauses = through.witness.drives + _MORE_PAUSES
        return through

    async def run(self, wrap: Callable[[WatchedStore], S], expected: type[BaseException] | tuple[()]) -> TrialRun[S]:
        """Run on a store that `wrap` makes faulty; if that raises the expected error, resume on the store itself."""
        witness, raised = Witness(), None
        sound = WatchedStore(self.store(), witness)
        faulty = wrap(sound)
        if self.ledger is not None:
            self.ledger.clear()
        try:
            with FakeClock() as later:
                try:
                    result = await self._drive_to_end(faulty, witness, later)
                except expected as error:
                    raised = error
                    result = await self._drive_to_end(sound, witness, later)
        finally:
            await sound.close()
        return TrialRun(faulty, result, witness, raised)

    async def _drive_to_end(self, store: Store, witness: Witness, later: FakeClock) -> TrialResult:
        """Drive the run until there is nothing left to do."""
        storage = BuiltInStorage(store, retention=self.retention)

        async def resume(responses: Mapping[str, Any]) -> WorkflowRunResult:
            return await self._drive(witness, None, storage, **({"responses": responses} if responses else {}))

        result = await self._drive(witness, self.message, storage)
        for _ in range(self.pauses):
            responses = await self._collect_answers(result)
            if result.wakes_at is not None:
                later.until(result.wakes_at)
            elif not responses:
                break
            if responses and isinstance(self.answer, ScriptedHuman):
                result = await self.answer.give(responses, resume, clock=later)
            else:
                result = await resume(responses)
            if witness.broken:
                break  # a run that repeats itself may never end
        else:
            witness.endless = True
        head = await storage.get_latest(run_id=_RUN)
        run = await storage.get_run(_RUN)
        assert head is not None
        assert run is not None
        effects = [] if self.ledger is None else self.ledger.effects
        state, tags = dict(head.state), dict(run.tags)
        return TrialResult(result.get_outputs(), state, head.status.value, tags, effects)

    async def _drive(self, witness: Witness, message: Any, storage: BuiltInStorage, **more: Any) -> WorkflowRunResult:
        arguments = () if more or await storage.get_latest(run_id=_RUN) is not None else (message,)
        options = {"run_id": _RUN, "checkpoint_storage": storage, "private": self.private, **more}
        witness.begin()
        stream: Any = self.workflow.run(*arguments, stream=True, nested=True, **options)
        async for event in stream:
            witness.observe(event)
        result: WorkflowRunResult = await stream
        return result

    async def _collect_answers(self, result: WorkflowRunResult) -> dict[str, Any]:
        if result.get_final_state() is not WorkflowRunState.IDLE_WITH_PENDING_REQUESTS or self.answer is None:
            return {}
        answers = {}
        for event in result.get_request_info_events():
            answer: Any | Awaitable[Any] = self.answer(event)
            answers[event.request_id] = await answer if isawaitable(answer) else answer
        return answers
