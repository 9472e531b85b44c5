"""Let a run die before and after every durable write, or let the write fail, go on with it, and compare."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from stepwell.errors import DurabilityError
from stepwell.model.superstep import FullHistory, Retention
from stepwell.storage.port import Store
from stepwell.stores.memory.store import MemoryStore
from stepwell.testing.faults.crash import Crash, CrashingStore
from stepwell.testing.faults.failing import FailingStore
from stepwell.testing.ledger import Ledger
from stepwell.testing.trial import NotTheSame, Responder, Trial, TrialResult, Witness
from stepwell.workflows.workflow import Workflow

__all__ = ["CrashReport", "NotTheSame", "crash_everywhere"]

Fault = type[CrashingStore] | type[FailingStore]
Point = tuple[int, bool]
"""A durable write, and whether it was done."""


@dataclass(frozen=True)
class CrashReport:
    """What was tried."""

    writes: int  # durable writes of a run that does not die
    crashes: int  # how often it was let die, or a write was let fail
    repeated: int  # handler calls that were made again, because what they had done was not durable yet
    runs: int  # how often it was run in all


async def crash_everywhere(
    workflow: Workflow,
    message: Any = None,
    *,
    answer: Responder | None = None,
    ledger: Ledger | None = None,
    store: Callable[[], Store] = MemoryStore,
    private: Mapping[str, Any] | None = None,
    retention: Retention = FullHistory,
    fault: Fault = CrashingStore,
    only: Point | None = None,
) -> CrashReport:
    """Prove that a workflow comes to the same wherever it dies.

    The run is made once and its durable writes are counted. Then it is made again for each write and each side of it,
    until one makes no more writes, dies there, and goes on. Outputs, state, status and effects must be the same, and no
    handler may be called whose outcome was durable. `answer` answers its questions, such as a `ScriptedHuman`; a run
    that sleeps is moved on in time. `store` makes an empty store for each run, which keeps what `retention` says and is
    closed at the end. Raises NotTheSame, saying where it died and what differs.

    With `fault=FailingStore` nobody dies: the write fails, done or not done, and whoever drives the run must hear of
    it. `only=(7, True)` tries one point alone: after write 7.
    """
    trial = Trial(workflow, message, answer, ledger, store, dict(private or {}), retention)
    witness, expected, writes = await trial.run_through()
    runs, tried, repeated = 1, 0, 0
    for at, after in _list_points() if only is None else [only]:
        trial_run = await _run_with_fault(trial, fault, at, after)
        runs += 1
        if not trial_run.reached and at > writes and only is None:
            break
        if problem := _find_problem(trial_run, expected):
            where = f"{_describe_fault(fault)} {'after' if after else 'before'} its write {at} of {writes}"
            raise NotTheSame(f"{where}, and {problem}; only=({at}, {after}) tries this alone")
        tried += 1
        repeated += max(0, len(trial_run.witness.called) - len(witness.called))
    return CrashReport(writes, tried, repeated, runs)


def _list_points() -> Iterator[Point]:
    """One after the other. There is no last one: what runs side by side makes more writes one day than another."""
    for at in count(1):
        yield at, False
        yield at, True


@dataclass(frozen=True)
class _TrialRun:
    """A run that was to meet a fault."""

    reached: bool  # it came that far
    result: TrialResult
    witness: Witness
    silent: bool  # its driver heard nothing of what was not written


async def _run_with_fault(trial: Trial, fault: Fault, at: int, after: bool) -> _TrialRun:
    expected: type[BaseException] = DurabilityError if _fails(fault) else Crash
    stores: list[Any] = []

    def wrap(inner: Any) -> Any:
        stores.append(fault(inner, at, after=after))
        return stores[0]

    result, witness, raised = await trial.run_into(wrap, expected)
    lost = [] if after or not _fails(fault) else [args for name, args in stores[0].failed if not _is_spare(name, args)]
    return _TrialRun(stores[0].writes >= at, result, witness, raised is None and bool(lost))


def _is_spare(name: str, args: tuple[Any, ...]) -> bool:
    """Whether a write may fail without a word: an outcome that is in the commit, too, need not be remembered."""
    return name == "write_log" and "/" not in args[2]


def _find_problem(trial_run: _TrialRun, expected: TrialResult) -> str | None:
    if trial_run.silent:
        return "nobody heard that nothing was written"
    if complaint := trial_run.witness.complaint():
        return f"then it {complaint}"
    differences = trial_run.result.differences(expected)
    return f"came to something else: {'; '.join(differences)}" if differences else None


def _describe_fault(fault: Fault) -> str:
    return "its store failed" if _fails(fault) else "it died"


def _fails(fault: Fault) -> bool:
    return issubclass(fault, FailingStore)
