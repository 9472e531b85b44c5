"""The names of the files and folders of a store, and the mark that makes a directory one.

    <root>/stepwell.json                         the mark, with the format of the store
    <root>/runs/3f/refund-3~a80091c28d5eb.jsonl  the log of run refund-3
    <root>/runs/3f/refund-3~a80091c28d5eb.part   the same while it is written anew
    <root>/workers/web-1.json                    what the worker web-1 says of itself
    <root>/webhooks/wh_5f3a91c2.json             a webhook

The digits are the hash of the run id that checkpoint ids contain too, so both lead to the file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Annotated

import msgspec

from stepwell.errors import CheckpointCorrupt, NewerFormat, StoreUnavailable
from stepwell.storage.durable_files import make_folder, write_whole
from stepwell.storage.ids import run_hash
from stepwell.storage.permissions import OWNER_ONLY

FORMAT = 1
MARK = "stepwell.json"
_RUN_NAME = re.compile(r".*~[0-9a-f]{13}\.jsonl")


class _Mark(msgspec.Struct):
    format: Annotated[int, msgspec.Meta(ge=1)]


_decode_mark = msgspec.json.Decoder(_Mark).decode


@lru_cache(maxsize=1024)
def run_name(run_id: str) -> str:
    """Return the name of a run's file, with its folder: never hidden, never a path elsewhere."""
    readable = re.sub(r"[^A-Za-z0-9_-]+", "_", run_id)[:60]
    return _hashed_name(run_hash(run_id)).replace("~", f"{readable}~")


def _hashed_name(hashed: int) -> str:
    digits = f"{hashed:015x}"
    return f"{digits[:2]}/~{digits[2:]}.jsonl"


class StoreFolder:
    """The folder of a store. Nothing is created before the first write."""

    def __init__(self, root: Path, mode: int = OWNER_ONLY) -> None:
        self.root, self._runs = root, root / "runs"
        self._mode = mode  # of files; in an existing store, that of its mark
        self._format: int | None = None  # of the store, once its mark was read

    def path_of(self, name: str) -> Path:
        return self._runs / name

    def names(self, hashed: int | None = None) -> Iterator[str]:
        """Yield the names of the files of all runs, or of those with that hash."""
        folder, _, ending = ("", "", "") if hashed is None else _hashed_name(hashed).partition("/")
        for above in [folder] if folder else _list(self._runs):
            for name in _list(self._runs / above):
                if _RUN_NAME.fullmatch(name) and name.endswith(ending):
                    yield f"{above}/{name}"

    def check(self) -> None:
        """Raise unless this is a store that this Stepwell knows, or there is none yet."""
        if self._format is None:
            self._format = read_mark(self.root)
            if self._format is not None:
                self._mode = (self.root / MARK).stat().st_mode & 0o666 | OWNER_ONLY
            # Look for the mark again: another process may have created the store just now.
            elif any((self.root / name).is_dir() for name in _list(self.root)) and read_mark(self.root) is None:
                raise StoreUnavailable(
                    f"{self.root} is not a Stepwell store: it contains folders and no {MARK}. Nothing was changed; "
                    f"choose a new or an empty folder"
                )

    def make(self) -> None:
        """Create the store, or upgrade one of an older format."""
        if not self.root.is_dir():
            self._format = None  # there is none yet, or it was deleted since we looked
        self.check()
        if (self._format or 0) < FORMAT:
            write_whole(self.root / MARK, b'{"format": %d}\n' % FORMAT, self._mode)
            self._format = FORMAT

    def prepare(self, folder: Path, *, creates: bool) -> int | None:
        """Prepare a write to a file in that folder; return the mode for a new one, if it may be created."""
        self.check()
        is_there = os.path.isdir(folder)
        if (creates and not is_there) or (is_there and self._format != FORMAT):
            self.make()
            make_folder(folder, self._mode)
        return self._mode if creates else None


def read_mark(root: Path) -> int | None:
    """Return the format of a store; None if there is no store.

    Raises NewerFormat if it is unknown here, and CheckpointCorrupt if the mark is damaged.
    """
    path = root / MARK
    try:
        stored = _decode_mark(path.read_text("utf-8")).format
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        what = f"{path} is damaged: it does not say the format of the store; restore it from a backup"
        raise CheckpointCorrupt(what) from error
    if stored > FORMAT:
        raise NewerFormat(
            f"{path} was written by a newer Stepwell (format {stored}, this one knows {FORMAT}) and is unchanged; "
            f"upgrade Stepwell to use it"
        )
    return stored


def _list(folder: Path) -> list[str]:
    with suppress(FileNotFoundError, NotADirectoryError):
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))
    return []
