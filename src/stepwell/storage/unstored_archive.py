"""The archive of a run without a storage: in the memory of this process, for one run.

Nobody else can open it, so nothing is encoded, unless its owner asks for that: it keeps the newest
checkpoint as it is, and the commits that a caller or a result still needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stepwell.model.checkpoint import Checkpoint, Retention
from stepwell.model.child import Child
from stepwell.model.commit import Commit
from stepwell.model.event import CheckpointInfo
from stepwell.model.log_keys import LogEntry, RecalledLog
from stepwell.model.message import Outcome
from stepwell.model.payload import Pack, pack_copy
from stepwell.model.signal import Signal
from stepwell.storage.archive import StoredRun
from stepwell.storage.lease import LEASE, Owner
from stepwell.storage.stored_values import LeaseReport
from stepwell.storage.transactions import Transaction


class UnstoredArchive:
    """Holds one run as long as somebody holds this object."""

    is_durable = False
    shortcomings: str | None = None
    has_superstep_log = False
    completes_log_writes = True
    retention = Retention.FullHistory
    lease = LEASE
    needed: int | None = None

    def __init__(self, head: Checkpoint | None = None, *, pack: Pack = pack_copy) -> None:
        self._head, self.pack = head, pack
        self._outputs: list[Commit] = []  # the commits with outputs
        self._since_open: list[Commit] = []  # those of the current drive
        self._signals: dict[str, Signal] = {}
        self._used_keys: set[str] = set()
        # Of the superstep in which the run waits for an answer.
        self._logged_outcomes: dict[str, Outcome] = {}
        self._logged_entries: dict[str, LogEntry] = {}

    @property
    def where(self) -> object:
        return self

    async def open(self, run_id: str, owner: Owner) -> StoredRun:
        self._since_open = []
        log = RecalledLog(dict(self._logged_outcomes), dict(self._logged_entries))
        return StoredRun(self._head, log, signals=self._signals)

    async def head(self, run_id: str) -> Checkpoint | None:
        return self._head

    async def look(self, run_id: str) -> StoredRun:
        return StoredRun(await self.head(run_id), signals=await self.pending_signals(run_id))

    async def find(self, checkpoint_id: str) -> Checkpoint | None:
        return None

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
        self._head = after
        if drop_log_through is not None:
            self._logged_outcomes.clear()
            self._logged_entries.clear()
        if any(done.outputs for done in commit.done):
            self._outputs.append(commit)
        if after.header.caller is not None:  # only a caller asks for them
            self._since_open.append(commit)
        for key in consumed:
            self._signals.pop(key, None)

    async def submit(self, commit: Commit, after: Checkpoint) -> bool:
        return False  # a run that is in private memory alone is for its own drive

    async def send(self, run_id: str, key: str, signal: Signal, *, as_driver: bool = False) -> bool:
        if key in self._used_keys:
            return False
        self._used_keys.add(key)
        self._signals[key] = signal
        return True

    async def pending_signals(self, run_id: str) -> dict[str, Signal]:
        return dict(self._signals)

    async def output_commits(self, checkpoint: Checkpoint) -> list[tuple[str, Commit]]:
        return [(checkpoint.run_id, commit) for commit in self._outputs]

    async def run_info(self, run_id: str) -> None:
        return None

    async def checkpoints(self, run_id: str) -> list[CheckpointInfo]:
        return []

    async def commits(self, run_id: str, *, after: int = -1) -> list[Commit]:
        """Return the commits of the current drive past a number: no others are kept."""
        return [commit for commit in self._since_open if commit.number > after]

    async def copy_children_for_fork(self, source: Checkpoint, run_id: str) -> Mapping[str, Child]:
        return source.children

    async def log_outcome(self, at: Checkpoint, outcome: Outcome, *, closed: Sequence[str] = ()) -> None:
        """Keep an outcome for the next drive: the run waits for an answer in the middle of a superstep."""
        self._logged_outcomes[outcome.delivery] = outcome

    async def log_entry(
        self,
        at: Checkpoint,
        key: str,
        entry: LogEntry,
        *,
        closed: Sequence[str] = (),
        consumed: Sequence[str] = (),
    ) -> None:
        """Keep an entry, for the same reason."""
        self._logged_entries[key] = entry

    def transaction(self, run_id: str, place: int, key: str) -> Transaction[LogEntry] | None:
        return None

    async def flush(self) -> None:
        """Do nothing: there is nothing to be stored."""

    def renew(self, fences: Mapping[str, int], *, seconds: float | None) -> LeaseReport:
        return LeaseReport()

    async def release(self, run_id: str, owner: Owner, *, stalls: bool = False) -> None:
        """Do nothing: nobody else can open the run."""
