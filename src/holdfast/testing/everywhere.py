"""Let a run die before and after every durable write, go on with it, and compare."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import Any

from ..core.events import WorkflowEvent, WorkflowRunState
from ..core.model import FullHistory, Retention
from ..durable.ports import Store
from ..durable.storage import BuiltInStorage
from ..stores.memory import MemoryStore
from ..workflow.result import WorkflowRunResult
from ..workflow.workflow import Workflow
from .clocks import FakeClock
from .crashing import Crash, CrashingStore
from .ledger import Ledger

Answer = Callable[[WorkflowEvent], Any]
"""A scripted human: the answer to a `request_info` event; may be async."""

_RUN = "crash-everywhere"
_MOST_PAUSES = 1000


class NotTheSame(AssertionError):
    """A run that died and went on came to something else than one that did not, or repeated what was committed."""


@dataclass(frozen=True)
class CrashReport:
    """What was tried."""

    writes: int  # durable writes of a run that does not die
    crashes: int  # how often it was let die
    repeated: int  # handler calls that were made again, because what they had done was not durable yet


@dataclass
class _Seen:
    """What came of a run, and which of its handlers were called."""

    outputs: list[Any]
    state: dict[str, Any]
    status: str
    effects: list[Any]

    def differences(self, other: _Seen) -> list[str]:
        pairs = ((name, getattr(self, name), getattr(other, name)) for name in vars(self))
        return [f"{name}: {mine!r} instead of {theirs!r}" for name, mine, theirs in pairs if mine != theirs]


Delivery = tuple[str | None, str | None]


@dataclass
class _Witness:
    """Which deliveries are durable, and which handlers were called: the same one must not be in both."""

    durable: set[Delivery] = field(default_factory=set)
    called: list[Delivery] = field(default_factory=list)
    broken: list[Delivery] = field(default_factory=list)
    before: frozenset[Delivery] = frozenset()  # those that were durable when this drive of the run began

    def begin(self) -> None:
        """Another drive of the run begins."""
        self.before = frozenset(self.durable)

    def see(self, event: WorkflowEvent) -> None:
        if event.type == "executor_invoked":
            delivery = (event.run_id, event.delivery)
            self.called.append(delivery)
            # a sub-workflow does not wait for us: what it did may be durable when we hear that it began
            if delivery in (self.before if event.path else self.durable):
                self.broken.append(delivery)


class _WatchedStore(CrashingStore):
    """Tells a witness which outcomes are durable."""

    def __init__(self, inner: Store, witness: _Witness, at: int | None, after: bool) -> None:
        super().__init__(inner, at, after=after)
        self._witness = witness

    def wrote(self, name: str, args: tuple[Any, ...]) -> None:
        if name == "append":
            record = args[0]
            done = json.loads(record.body).get("done", ())
            self._witness.durable |= {(record.entry.run_id, one["delivery"]) for one in done}
        elif name == "remember" and "/" not in args[2]:
            self._witness.durable.add((args[0], args[2]))


async def crash_everywhere(
    workflow: Workflow,
    message: Any = None,
    *,
    answer: Answer | None = None,
    ledger: Ledger | None = None,
    store: Callable[[], Store] = MemoryStore,
    private: Mapping[str, Any] | None = None,
    retention: Retention = FullHistory,
) -> CrashReport:
    """Prove that a workflow comes to the same wherever it dies.

    The run is made once and its durable writes are counted. Then it is made again for each write and each side of it,
    dies there, and goes on. Outputs, state, status and effects must be the same, and no handler may be called whose
    outcome was durable. `answer` answers its questions; a run that sleeps is moved on in time. `store` makes an empty
    store for each run, which keeps what `retention` says. Raises NotTheSame, saying where it died and what differs.
    """
    trial = _Trial(workflow, message, answer, ledger, store, dict(private or {}), retention)
    witness, expected, writes = await trial.run_through()
    crashes = repeated = 0
    for at in range(1, writes + 1):
        for after in (False, True):
            seen, again = await trial.die(at, after)
            where = f"it died {'after' if after else 'before'} its write {at} of {writes}"
            if again.broken:
                raise NotTheSame(f"{where}, and then called again what was durable: {again.broken}")
            if found := seen.differences(expected):
                raise NotTheSame(f"{where}, and came to something else: {'; '.join(found)}")
            crashes += 1
            repeated += max(0, len(again.called) - len(witness.called))
    return CrashReport(writes, crashes, repeated)


@dataclass
class _Trial:
    workflow: Workflow
    message: Any
    answer: Answer | None
    ledger: Ledger | None
    store: Callable[[], Store]
    private: dict[str, Any]
    retention: Retention

    async def run_through(self) -> tuple[_Witness, _Seen, int]:
        witness = _Witness()
        store = _WatchedStore(self.store(), witness, None, False)
        seen = await self._finish(store, witness)
        return witness, seen, store.writes

    async def die(self, at: int, after: bool) -> tuple[_Seen, _Witness]:
        witness, inner = _Witness(), self.store()
        self._new_world()
        with FakeClock() as later:
            with suppress(Crash):
                await self._to_the_end(_WatchedStore(inner, witness, at, after), witness, later)
            seen = await self._to_the_end(_WatchedStore(inner, witness, None, False), witness, later)
        return seen, witness

    async def _finish(self, store: CrashingStore, witness: _Witness) -> _Seen:
        self._new_world()
        with FakeClock() as later:
            return await self._to_the_end(store, witness, later)

    def _new_world(self) -> None:
        if self.ledger is not None:
            self.ledger.clear()

    async def _to_the_end(self, store: CrashingStore, witness: _Witness, later: FakeClock) -> _Seen:
        """Move the run on until there is nothing more to do for it."""
        storage = BuiltInStorage(store, retention=self.retention)
        result = await self._drive(witness, self.message, storage)
        for _ in range(_MOST_PAUSES):
            responses = await self._answers(result)
            if result.wakes_at is not None:
                later.until(result.wakes_at)
            elif not responses:
                break
            result = await self._drive(witness, None, storage, **({"responses": responses} if responses else {}))
        head = await storage.get_latest(run_id=_RUN)
        assert head is not None
        effects = [] if self.ledger is None else self.ledger.effects
        return _Seen(result.get_outputs(), dict(head.state), head.status.value, effects)

    async def _drive(self, witness: _Witness, message: Any, storage: BuiltInStorage, **more: Any) -> WorkflowRunResult:
        given = () if more or await storage.get_latest(run_id=_RUN) is not None else (message,)
        options = {"run_id": _RUN, "checkpoint_storage": storage, "private": self.private, **more}
        witness.begin()
        stream: Any = self.workflow.run(*given, stream=True, **options)
        async for event in stream:
            witness.see(event)
        result: WorkflowRunResult = await stream
        return result

    async def _answers(self, result: WorkflowRunResult) -> dict[str, Any]:
        if result.get_final_state() is not WorkflowRunState.IDLE_WITH_PENDING_REQUESTS or self.answer is None:
            return {}
        answered = {}
        for event in result.get_request_info_events():
            given: Any | Awaitable[Any] = self.answer(event)
            answered[event.request_id] = await given if isawaitable(given) else given
        return answered
