"""What must be on the disk for good before a store says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from .disk import Change, Disk
from .recording import Call

DURABLE = ("append", "write_log", "send")
WAL, SHARED, DATABASE = "runs.db-wal", "runs.db-shm", "runs.db"


def is_rebuilt(path: str) -> bool:
    """SQLite makes it anew when it opens a database that nobody has open."""
    return path.endswith(SHARED)


def does_without(path: str) -> str | None:
    """Why a store does without what was last written there, or None."""
    name = path.rpartition("/")[2]
    if name == DATABASE:
        return "all of it is in the WAL as well, until that is begun anew"
    return None


def is_done_without(change: Change) -> bool:
    """Whether it overwrites what nobody needs: a body that was consumed, or when a lease ends."""
    return bool(change.data) and not change.data.strip(b" 0123456789.")


@dataclass
class Order:
    """What was found out about a recording."""

    acknowledged: Counter[str] = field(default_factory=Counter)
    alone: int = 0  # how many of these while nothing else was under way
    resets: int = 0  # how often a WAL was begun anew or removed
    broken: list[str] = field(default_factory=list)


def order_of(calls: Sequence[Call]) -> Order:
    disk, order = Disk(is_rebuilt), Order()
    under_way: dict[int, int] = {}  # when each write that is not acknowledged was begun
    committed = -1
    handles: dict[int, str] = {}
    for at, call in enumerate(calls):
        if call.what == "open":
            handles[call.fd] = call.path
        if _resets_the_wal(call, handles):
            order.resets += 1
            order.broken += [f"call {at} ({call}): {path} was not synced before" for path in _unsafe(disk, DATABASE)]
        disk.take(at, call)
        if call.what != "mark":
            continue
        mark = call.mark
        if mark["happened"] == "begun":
            under_way[mark["write"]] = at
        elif mark["happened"] == "done":
            del under_way[mark["write"]]
            if mark["what"] in DURABLE:
                order.acknowledged[mark["what"]] += 1
                order.alone += not under_way
                order.broken += [f"call {at} ({call}): {risk}" for risk in _at_risk(disk, list(under_way.values()))]
            if mark["what"] == "append":
                committed = mark["number"]
        elif mark["happened"] == "told" and mark["number"] > committed:
            order.broken.append(f"call {at} ({call}): told before it was acknowledged")
    return order


def _at_risk(disk: Disk, begun: list[int]) -> Iterator[str]:
    """What was not synced, unless it is of a write that began before it and is still under way."""
    contents = {
        path: [change for change in file.changes if not is_done_without(change)]
        for path, file in disk.unsafe_files().items()
    }
    risks = [(path, changes[0].at, "the content of") for path, changes in contents.items() if changes]
    risks += [(path, naming.at, "the name") for path, naming in disk.unsafe_names().items()]
    for path, at, what in risks:
        if does_without(path) is None and not any(began < at for began in begun):
            yield f"{what} {path} is of call {at} and was not synced since"


def _resets_the_wal(call: Call, handles: dict[int, str]) -> bool:
    """Whether what is in the WAL is lost by that. Not if it is only now made."""
    if call.what == "remove":
        return call.path.endswith(WAL)
    path = handles.get(call.fd, "")
    return path.endswith(WAL) and (call.what == "resize" or (call.what == "write" and call.number == 0))


def _unsafe(disk: Disk, name: str) -> list[str]:
    return [path for path in disk.unsafe_files() if path.rpartition("/")[2] == name]
