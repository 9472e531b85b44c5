"""The superstep log of a run, as files.

    <run>/memory/000012-<key>.json   entries of place 12, named after the first key in the file

Entries that were written together share a file; see group_commit.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from stepwell.errors import CheckpointCorrupt
from stepwell.stores.files import layout
from stepwell.stores.files.layout import FORMAT, LOG_FOLDER, RECORD_NAME, StoredFile


class LogItem(msgspec.Struct):
    """One entry of the log."""

    key: str
    body: msgspec.Raw


class LogFile(StoredFile, omit_defaults=True):
    """A file of the log: the entries that were written together."""

    key: str
    body: msgspec.Raw
    more: tuple[LogItem, ...] = ()

    def items(self) -> list[LogItem]:
        return [LogItem(self.key, self.body), *self.more]


_LOG_FILES = msgspec.json.Decoder(LogFile)


def write_log_file(folder: Path, place: int, items: list[LogItem]) -> None:
    """Write new entries of a place, all or nothing."""
    layout.make_folder(folder / LOG_FOLDER)
    first, *more = items
    layout.write(
        folder / LOG_FOLDER / _log_file_name(place, first.key), LogFile(FORMAT, first.key, first.body, tuple(more))
    )


def items_at(folder: Path, place: int) -> list[LogItem]:
    """Return the entries of a place."""
    return [item for path in log_files(folder, place) for item in _read_log_file(path, place).items()]


def log_files(folder: Path, place: int | None = None) -> list[Path]:
    """Return the files of a run's log, or those of one place."""
    start = "" if place is None else f"{place:06d}-"
    try:
        names = sorted(os.listdir(folder / LOG_FOLDER))
    except FileNotFoundError:
        return []
    return [folder / LOG_FOLDER / name for name in names if RECORD_NAME.fullmatch(name) and name.startswith(start)]


def drop_log_after(folder: Path, place: int) -> None:
    """Delete the log of the places after one."""
    for path in log_files(folder):
        if _place_of(path) > place:
            path.unlink()


def drop_log(folder: Path, upto: int | None = None) -> None:
    """Delete the log of every place, or of those up to one."""
    for path in log_files(folder):
        if upto is None or _place_of(path) <= upto:
            path.unlink()
    if upto is None:
        with suppress(OSError):  # it does not exist, or is not empty
            (folder / LOG_FOLDER).rmdir()


def _read_log_file(path: Path, place: int) -> LogFile:
    log_file = layout.read(path, _LOG_FILES)
    if path.name != _log_file_name(place, log_file.key):
        raise CheckpointCorrupt(
            f"{path} does not belong under this name: it contains log entry {log_file.key!r}; move it back or delete it"
        )
    return log_file


def _log_file_name(place: int, key: str) -> str:
    return f"{place:06d}-{layout.safe_name(key)}.json"


def _place_of(log_file: Path) -> int:
    return int(log_file.name.partition("-")[0])
