"""`crash_everywhere`: crash a run at every durable write, resume it, and compare the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

from stepwell.errors import DurabilityError
from stepwell.model.checkpoint import FullHistory, Retention
from stepwell.storage.port import Store
from stepwell.stores.memory.store import MemoryStore
from stepwell.testing.crash_trial import NotTheSame, Responder, Trial, TrialResult, TrialRun, is_outcome
from stepwell.testing.faults.crash import Crash, CrashingStore
from stepwell.testing.faults.failing import FailingStore
from stepwell.testing.faults.wrapped_store import WrappedStore
from stepwell.testing.ledger import Ledger
from stepwell.workflows.workflow import Workflow

__all__ = ["CrashReport", "NotTheSame", "crash_everywhere"]

Fault = type[CrashingStore] | type[FailingStore]
Point = tuple[int, bool]
"""The number of a durable write, and whether the fault comes after it or before it."""


@dataclass(frozen=True)
class CrashReport:
    """What `crash_everywhere` tried."""

    writes: int  # durable writes of a run without faults
    crashes: int  # crashes, or failed writes, that were tried
    repeated: int  # handler calls that were repeated because their outcome was not durable yet
    runs: int  # runs in all


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
    """Prove that a workflow gives the same result wherever its process crashes.

    Runs the workflow once without faults and counts its durable writes. Then runs it again for each
    write, once crashing before it and once after it, and resumes it. Outputs, state, status, tags and
    effects must be the same, and no handler may be called again whose outcome was durable.

    `answer` responds to requests, for example a `ScriptedHuman`; the clock is advanced for a run that
    sleeps. `ledger` is compared too, and cleared before each run. `store` makes an empty store for each
    run, which is closed at the end; `retention` applies to it. `private` is passed to `Workflow.run`.

    With `fault=FailingStore` nothing crashes: the write raises StoreUnavailable, done or not, and the
    driver of the run must get an error. `only=(7, True)` tries a single point: after write 7.

    Raises NotTheSame, with the point of the crash and what differs.
    """
    trial = Trial(
        workflow,
        message,
        answer=answer,
        ledger=ledger,
        store=store,
        private=dict(private or {}),
        retention=retention,
    )
    through = await trial.run_through()
    writes = through.store.writes
    fails = issubclass(fault, FailingStore)
    runs, tried, repeated = 1, 0, 0
    # Without an end, because the number of writes may differ from run to run.
    every_point = ((at, after) for at in count(1) for after in (False, True))
    for at, after in every_point if only is None else [only]:
        trial_run = await trial.run(partial(fault, at=at, after=after), DurabilityError if fails else Crash)
        runs += 1
        # Parallel handlers may make more writes in one run than in another. So a run that does not
        # reach its point ends the search only if it is past the number of writes that was counted
        # first.
        if trial_run.store.writes < at and at > writes and only is None:
            break
        if problem := _find_problem(trial_run, through.result, after):
            where = f"when the {'store failed' if fails else 'run crashed'} {'after' if after else 'before'} write {at}"
            raise NotTheSame(f"{where} of {writes}, {problem}; to try this point alone, use only=({at}, {after})")
        tried += 1
        repeated += max(0, len(trial_run.witness.called) - len(through.witness.called))
    return CrashReport(writes, tried, repeated, runs)


def _find_problem(trial_run: TrialRun[WrappedStore], expected: TrialResult, after: bool) -> str | None:
    failed = trial_run.store.failed if isinstance(trial_run.store, FailingStore) else []
    # An outcome may fail to be logged without an error, because the commit holds it, too.
    if trial_run.raised is None and not after and not all(is_outcome(*write) for write in failed):
        return "the driver got no error although nothing was written"
    if complaint := trial_run.witness.complaint():
        return f"the run then {complaint}"
    differences = trial_run.result.differences(expected)
    return f"the result differs: {'; '.join(differences)}" if differences else None
