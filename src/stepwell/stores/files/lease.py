"""The lease of a run: `owner.json`. The file outlives the lease, because fences must keep rising.

A lease need not survive a power failure: no process survives that could write under it.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from stepwell.storage.lease import Lease, Owner
from stepwell.stores.files import layout
from stepwell.stores.files.layout import FORMAT, OWNER, StoredFile


class StoredLease(StoredFile):
    """The last lease of a run."""

    host: str
    machine: str
    pid: int
    started: str
    drive: str
    until: float | None  # None: released
    fence: int

    @property
    def lease(self) -> Lease | None:
        """The lease, or None if it was released."""
        if self.until is None:
            return None
        return Lease(Owner(self.host, self.machine, self.pid, self.started, self.drive), self.until)

    def is_held(self) -> bool:
        return self.lease is not None and not self.lease.is_over()


_LEASES = msgspec.json.Decoder(StoredLease)


def lease_in(folder: Path) -> StoredLease | None:
    try:
        return layout.read(folder / OWNER, _LEASES)
    except FileNotFoundError:
        return None


def fence_in(folder: Path) -> int:
    """Return the fence of the last lease; 0 if there was none."""
    stored = lease_in(folder)
    return stored.fence if stored else 0


def acquire(folder: Path, run_id: str, owner: Owner, seconds: float) -> int:
    stored = lease_in(folder)
    lease = stored.lease if stored else None
    if lease is not None and lease.owner != owner and not lease.is_over():
        raise lease.busy_error(run_id)
    fence = stored.fence + 1 if stored else 1
    _write(folder, owner, owner.clock() + seconds, fence)
    return fence


def renew(folder: Path, fence: int, seconds: float) -> bool:
    """Extend the lease with that fence, if it is held; False if there is a later one."""
    stored = lease_in(folder)
    lease = stored.lease if stored else None
    if stored is not None and lease is not None and stored.fence == fence:
        _write(folder, lease.owner, lease.owner.clock() + seconds, fence)
    return stored is None or stored.fence <= fence


def release(folder: Path, owner: Owner) -> bool:
    """Release the lease; False if that owner does not hold it."""
    stored = lease_in(folder)
    lease = stored.lease if stored else None
    if stored is None or lease is None or lease.owner != owner:
        return False
    _write(folder, owner, None, stored.fence)
    return True


def _write(folder: Path, owner: Owner, until: float | None, fence: int) -> None:
    stored = StoredLease(
        FORMAT,
        owner.host,
        machine=owner.machine,
        pid=owner.pid,
        started=owner.started,
        drive=owner.drive,
        until=until,
        fence=fence,
    )
    layout.write(folder / OWNER, stored, lasting=False)
