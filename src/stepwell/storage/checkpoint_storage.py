"""`CheckpointStorage`, the contract that users may implement, and an archive on top of it."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Awaitable, Mapping, Sequence
from typing import Protocol, TypeVar

from stepwell.codec.codec import Codec
from stepwell.errors import CheckpointMissing, DefinitionError, StepwellError, StoreUnavailable
from stepwell.kernel.lifecycle import drop_undone
from stepwell.model.checkpoint import Checkpoint, Retention
from stepwell.model.child import Child
from stepwell.model.commit import Commit
from stepwell.model.event import CheckpointInfo
from stepwell.model.log_keys import LogEntry, RecalledLog
from stepwell.model.message import Outcome
from stepwell.model.payload import Pack
from stepwell.model.signal import Signal
from stepwell.storage.archive import StoredRun, commit_error
from stepwell.storage.checkpoint import WorkflowCheckpoint, unview, view
from stepwell.storage.lease import LEASE, Lease, Owner
from stepwell.storage.stored_values import LeaseReport
from stepwell.storage.transactions import Transaction

T = TypeVar("T")
CONTRACT = ("save", "load", "list_checkpoints", "delete", "get_latest", "list_checkpoint_ids")


class CheckpointStorage(Protocol):
    """Any class with these six methods can store runs.

    The built-in ones do more, and also take a `run_id`.
    """

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        """Store a checkpoint and return its id. An exception fails the superstep."""

    async def load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        """Return the checkpoint with that id. Raises if there is none."""

    async def list_checkpoints(self, *, workflow_name: str) -> Sequence[WorkflowCheckpoint]:
        """Return the checkpoints of a workflow, oldest first."""

    async def delete(self, checkpoint_id: str) -> bool:
        """Delete a checkpoint; False if there is none with that id."""

    async def get_latest(self, *, workflow_name: str) -> WorkflowCheckpoint | None:
        """Return the newest checkpoint of any run of a workflow."""

    async def list_checkpoint_ids(self, *, workflow_name: str) -> Sequence[str]:
        """Return the ids of a workflow's checkpoints, oldest first."""


def check_contract(storage: object) -> None:
    """Raise DefinitionError, naming what is missing, unless an object has the six methods."""
    missing = [name for name in CONTRACT if not callable(getattr(storage, name, None))]
    if missing:
        raise DefinitionError(
            f"{type(storage).__name__!r} is not a checkpoint storage: it has no {', '.join(missing)}; "
            f'pass an object with {", ".join(CONTRACT)}, or "default"'
        )


async def _call(answer: Awaitable[T], method: str) -> T:
    """Await a method of a user's storage; its exceptions become StoreUnavailable.

    Our own errors and LookupError pass: they mean that there is no such checkpoint.
    """
    try:
        return await answer
    except (StepwellError, LookupError):
        raise
    except Exception as error:
        raise StoreUnavailable(f"{method} of the storage failed: {type(error).__name__}: {error}") from error


class _LocalState:
    """What the six methods cannot store: the signals of runs, and who drives them.

    For this process only.
    """

    def __init__(self) -> None:
        self.signals: dict[str, dict[str, Signal]] = {}
        self.used: dict[str, set[str]] = {}  # every key that was ever used, by run
        self.drivers: dict[str, Owner] = {}
        # Of supersteps in which runs wait for an answer, by run.
        self.outcomes: dict[str, dict[str, Outcome]] = {}
        self.entries: dict[str, dict[str, LogEntry]] = {}

    def log_of(self, run_id: str) -> RecalledLog:
        return RecalledLog(dict(self.outcomes.get(run_id, {})), dict(self.entries.get(run_id, {})))


# By the id of the storage object. It has to be a global: every drive makes its own archive, and all
# archives on one storage must see the same signals and drivers. An attribute on the user's object
# could collide with theirs, and a WeakKeyDictionary needs hashable keys, which a storage may not
# be. The second item keeps an object alive that cannot be referenced weakly, so its id is not
# reused.
_LOCAL_STATES: dict[int, tuple[_LocalState, object]] = {}
# Reentrant: the garbage collector may run a finalizer, and with it code that takes the lock again,
# while this thread holds it.
_LOCK = threading.RLock()


def _local_state_of(storage: object) -> _LocalState:
    """Return the local state of a storage; it lives as long as that object."""
    with _LOCK:
        if id(storage) not in _LOCAL_STATES:
            try:
                weakref.finalize(storage, _LOCAL_STATES.pop, id(storage), None)
                _LOCAL_STATES[id(storage)] = _LocalState(), None
            except TypeError:  # a class with __slots__ and no __weakref__
                _LOCAL_STATES[id(storage)] = _LocalState(), storage
        return _LOCAL_STATES[id(storage)][0]


class ContractArchive:
    """An archive on the six methods alone: checkpoints at the end of supersteps, no log."""

    shortcomings: str | None = (
        "this storage keeps whole checkpoints only: after a crash the superstep in progress runs "
        "again from its start, and nothing stops two processes from driving one run"
    )
    is_durable = True
    has_superstep_log = False
    completes_log_writes = True
    retention = Retention.FullHistory  # the storage itself decides what it keeps
    needed: int | None = None
    lease = LEASE  # has no effect here

    def __init__(self, storage: CheckpointStorage, workflow: str, codec: Codec) -> None:
        self._storage, self._workflow, self._codec = storage, workflow, codec
        self.pack: Pack = codec.pack
        self._local = _local_state_of(storage)
        self._owner: Owner | None = None  # who opened the run

    @property
    def where(self) -> object:
        return self._storage

    async def open(self, run_id: str, owner: Owner) -> StoredRun:
        """Acquire the run within this process; others cannot know, as `shortcomings` states."""
        with _LOCK:
            driver = self._local.drivers.get(run_id, owner)
            # After a fork, the child has a copy of the parent's drivers, which do not run in it.
            if driver != owner and driver.is_this_process():
                raise Lease(driver, driver.clock() + self.lease).busy_error(run_id)
            self._local.drivers[run_id] = self._owner = owner
        log = self._local.log_of(run_id)
        return StoredRun(await self.head(run_id), log, signals=await self.pending_signals(run_id))

    async def head(self, run_id: str) -> Checkpoint | None:
        checkpoints = await self._of_run(run_id)
        return unview(checkpoints[-1], self._codec)[0] if checkpoints else None

    async def look(self, run_id: str) -> StoredRun:
        log = self._local.log_of(run_id)
        return StoredRun(await self.head(run_id), log, signals=await self.pending_signals(run_id))

    async def find(self, checkpoint_id: str) -> Checkpoint | None:
        try:
            checkpoint: WorkflowCheckpoint | None = await _call(self._storage.load(checkpoint_id), "load")
        except (CheckpointMissing, LookupError):
            return None
        return None if checkpoint is None else unview(checkpoint, self._codec)[0]

    async def commit(
        self,
        commit: Commit,
        after: Checkpoint,
        *,
        before: Checkpoint | None = None,
        drop_log_through: int | None = None,
        consumed: tuple[str, ...] = (),
        release: bool = False,
    ) -> None:
        from stepwell.storage.cancellation_shield import finish  # lazy: it imports asyncio

        try:
            await finish(self._commit(commit, after, consumed, release=release))
            if drop_log_through is not None:
                self._local.outcomes.pop(after.run_id, None)
                self._local.entries.pop(after.run_id, None)
        except StepwellError:
            raise
        except Exception as error:
            raise commit_error(commit, after.run_id, error) from error

    async def _commit(self, commit: Commit, after: Checkpoint, consumed: tuple[str, ...], *, release: bool) -> None:
        await self._storage.save(view(after, commit))
        # After the save: if it fails, the signals are still pending. Their keys stay in `used`.
        for key in consumed:
            self._local.signals.get(after.run_id, {}).pop(key, None)
        if release and self._owner is not None:
            await self.release(after.run_id, self._owner)

    async def submit(self, commit: Commit, after: Checkpoint) -> bool:
        return False  # `save` would overwrite a run that is stored

    async def send(self, run_id: str, key: str, signal: Signal, *, as_driver: bool = False) -> bool:
        with _LOCK:
            used = self._local.used.setdefault(run_id, set())
            if key in used:
                return False
            used.add(key)
            self._local.signals.setdefault(run_id, {})[key] = signal
            return True

    async def pending_signals(self, run_id: str) -> dict[str, Signal]:
        return dict(self._local.signals.get(run_id, {}))

    async def output_commits(self, checkpoint: Checkpoint) -> list[tuple[str, Commit]]:
        before = None if checkpoint.header.parent_id is None else await self.find(checkpoint.header.parent_id)
        earlier = await self.output_commits(before) if before is not None else []
        # Each view holds the whole commit that led to it, and with it the outputs.
        views = [view for view in await self._of_run(checkpoint.run_id) if view.number <= checkpoint.number]
        commits = drop_undone([unview(view, self._codec)[1] for view in views])
        outputs = [commit for commit in commits if any(done.outputs for done in commit.done)]
        return earlier + [(checkpoint.run_id, commit) for commit in outputs]

    async def copy_children_for_fork(self, source: Checkpoint, run_id: str) -> Mapping[str, Child]:
        return source.children

    async def run_info(self, run_id: str) -> None:
        return None

    async def checkpoints(self, run_id: str) -> list[CheckpointInfo]:
        return [
            CheckpointInfo(run_id, checkpoint.checkpoint_id, checkpoint.number)
            for checkpoint in await self._of_run(run_id)
        ]

    async def commits(self, run_id: str, *, after: int = -1) -> list[Commit]:
        return [
            unview(checkpoint, self._codec)[1] for checkpoint in await self._of_run(run_id) if checkpoint.number > after
        ]

    async def log_outcome(self, at: Checkpoint, outcome: Outcome, *, closed: Sequence[str] = ()) -> None:
        """Keep an outcome in this process: there is no superstep log here, as `shortcomings` states."""
        self._local.outcomes.setdefault(at.run_id, {})[outcome.delivery] = outcome

    async def log_entry(
        self,
        at: Checkpoint,
        key: str,
        entry: LogEntry,
        *,
        closed: Sequence[str] = (),
        consumed: Sequence[str] = (),
    ) -> None:
        """Keep an entry in this process, for the same reason."""
        self._local.entries.setdefault(at.run_id, {})[key] = entry

    def transaction(self, run_id: str, place: int, key: str) -> Transaction[LogEntry] | None:
        return None

    async def flush(self) -> None:
        """Do nothing: a checkpoint is stored when `commit` returns."""

    def renew(self, fences: Mapping[str, int], *, seconds: float | None) -> LeaseReport:
        """Do nothing: the lease lasts as long as the process."""
        return LeaseReport()

    async def release(self, run_id: str, owner: Owner, *, stalls: bool = False) -> None:
        with _LOCK:
            if self._local.drivers.get(run_id) == owner:
                del self._local.drivers[run_id]

    async def _of_run(self, run_id: str) -> list[WorkflowCheckpoint]:
        # The contract has no search by run, so all checkpoints of the workflow are listed.
        checkpoints = await _call(self._storage.list_checkpoints(workflow_name=self._workflow), "list_checkpoints")
        return sorted(
            (checkpoint for checkpoint in checkpoints if checkpoint.run_id == run_id),
            key=lambda checkpoint: checkpoint.number,
        )
