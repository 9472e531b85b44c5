"""The registry of workers: who drives the runs of a store, as they say themselves.

A protocol of its own, beside the six of the port: a store without it works, but nobody sees its
workers. Nothing depends on what it says. A lease says who drives a run; the registry only helps
workers to share the ready runs, and people to see who is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol, runtime_checkable

import msgspec

from stepwell.storage import clock
from stepwell.storage.checked_reads import decode_stored
from stepwell.storage.lease import Owner

ALIVE_FOR = 20.0  # seconds since it was last seen, for which a worker counts as alive
KEPT_FOR = 86_400.0  # seconds for which a store keeps a worker that is not seen any more


class WorkerRow(msgspec.Struct, frozen=True):
    """A worker as it is stored."""

    name: str
    process: str
    age: float  # seconds since it was last seen, by the clock of the store
    body: bytes


@runtime_checkable
class WorkerRegistry(Protocol):
    """What a store implements whose workers can be seen."""

    async def announce_worker(self, name: str, process: str, body: bytes) -> bool:
        """Store what a worker says of itself, seen now; False if another process has that name.

        That is, one that was seen within the last `ALIVE_FOR` seconds. Workers that were not seen
        for `KEPT_FOR` seconds are removed.
        """

    async def withdraw_worker(self, name: str, process: str) -> None:
        """Remove a worker, if it is still that process."""

    async def workers(self) -> list[WorkerRow]:
        """Return all workers, by name."""


class WorkerProfile(msgspec.Struct, frozen=True):
    """What a worker says of itself."""

    owner: Owner
    version: str  # of Stepwell
    slots: int
    workflows: Mapping[str, int]  # the version of each
    runs: tuple[str, ...]  # that it drives
    started_at: str  # UTC, ISO 8601
    takeovers: int = 0  # runs that it acquired from a driver that had died or fallen silent


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker, as it described itself when it was last seen. Times are UTC, ISO 8601."""

    name: str
    process: str  # its id, and the host
    version: str  # of Stepwell
    slots: int
    workflows: Mapping[str, int]  # the version of each
    runs: tuple[str, ...]  # that it drove
    started_at: str
    seen_at: str
    is_alive: bool  # it was seen lately, and its process is not known to be dead
    takeovers: int  # runs that it acquired from a driver that had died or fallen silent


_decode_profile = msgspec.json.Decoder(WorkerProfile).decode


def read_profile(row: WorkerRow) -> WorkerProfile:
    """Return what a worker said of itself. Raises CheckpointCorrupt if it is damaged."""
    return decode_stored(_decode_profile, row.body, f"the entry of worker {row.name!r}")


def worker_info(row: WorkerRow) -> WorkerInfo:
    """Return a worker as users see it."""
    profile = read_profile(row)
    return WorkerInfo(
        name=row.name,
        process=str(profile.owner),
        version=profile.version,
        slots=profile.slots,
        workflows=dict(profile.workflows),
        runs=profile.runs,
        started_at=profile.started_at,
        seen_at=datetime.fromtimestamp(clock.seconds() - row.age, UTC).isoformat(),
        is_alive=is_alive(row),
        takeovers=profile.takeovers,
    )


def is_alive(row: WorkerRow) -> bool:
    return row.age <= ALIVE_FOR and not read_profile(row).owner.is_dead()
