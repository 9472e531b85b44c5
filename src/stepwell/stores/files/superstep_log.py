"""The memory of a run, as files: what was finished inside the superstep that is still under way.

    <run>/memory/000012-<key>.json   what was kept at place 12, named after the first key in it

What was remembered at once is in one file; see group_commit.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from stepwell.errors import CheckpointCorrupt
from stepwell.stores.files import layout
from stepwell.stores.files.layout import FORMAT, MEMORY, RECORD_NAME, StoredFile


class LogItem(msgspec.Struct):
    """One thing that is remembered."""

    key: str
    body: msgspec.Raw


class Memo(StoredFile, omit_defaults=True):
    """What was remembered at once, as it is written to its file."""

    key: str
    body: msgspec.Raw
    more: tuple[LogItem, ...] = ()

    def items(self) -> list[LogItem]:
        return [LogItem(self.key, self.body), *self.more]


_MEMOS = msgspec.json.Decoder(Memo)


def write_memo(folder: Path, place: int, items: list[LogItem]) -> None:
    """Keep what is new at a place, all or nothing."""
    layout.make_folder(folder / MEMORY)
    first, *more = items
    layout.write(folder / MEMORY / _memo_name(place, first.key), Memo(FORMAT, first.key, first.body, tuple(more)))


def items_at(folder: Path, place: int) -> list[LogItem]:
    """Everything remembered at a place."""
    return [item for path in memos_in(folder, place) for item in _read_memo(path, place).items()]


def memos_in(folder: Path, place: int | None = None) -> list[Path]:
    """The files of a run's memory, or of one place in it."""
    start = "" if place is None else f"{place:06d}-"
    try:
        names = sorted(os.listdir(folder / MEMORY))
    except FileNotFoundError:
        return []
    return [folder / MEMORY / name for name in names if RECORD_NAME.fullmatch(name) and name.startswith(start)]


def forget_after(folder: Path, place: int) -> None:
    """Delete the memory of places past one."""
    for path in memos_in(folder):
        if _place_of(path) > place:
            path.unlink()


def forget(folder: Path, upto: int | None = None) -> None:
    """Delete the memory of every place, or of those up to one."""
    for path in memos_in(folder):
        if upto is None or _place_of(path) <= upto:
            path.unlink()
    if upto is None:
        with suppress(OSError):  # it is not there, or something is left in it
            (folder / MEMORY).rmdir()


def _read_memo(path: Path, place: int) -> Memo:
    memo = layout.read(path, _MEMOS)
    if path.name != _memo_name(place, memo.key):
        raise CheckpointCorrupt(f"{path} is not what its name says: it holds {memo.key!r}; put it back or delete it")
    return memo


def _memo_name(place: int, key: str) -> str:
    return f"{place:06d}-{layout.safe_name(key)}.json"


def _place_of(memo: Path) -> int:
    return int(memo.name.partition("-")[0])
