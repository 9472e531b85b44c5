"""The mail of a run, as files.

<run>/mail/000012-<key>.json      mail, numbered as it was posted
<run>/mail/000012-<key>.consumed  mail that a record has consumed: a tombstone, without its body
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from stepwell.errors import CheckpointCorrupt
from stepwell.stores.files import layout
from stepwell.stores.files.layout import FORMAT, MAIL, StoredFile

SIGNAL_NAME = re.compile(r"(\d{6,})-(.+)\.(json|consumed)", re.DOTALL)


class StoredSignal(StoredFile):
    """One piece of mail as it is written to its file."""

    key: str
    body: msgspec.Raw


_NOTHING = msgspec.Raw(b"null")
_SIGNALS = msgspec.json.Decoder(StoredSignal)


class Signals:
    """Which mail a run has and had, by the safe names of the keys.

    Only who holds the lock of the run changes it. `waiting` may be read meanwhile: it is replaced, never changed.
    """

    def __init__(self, waiting: dict[str, Path], used: set[str], next_number: int) -> None:
        self.waiting = waiting  # not consumed, oldest first
        self.used = used  # every name there ever was
        self._next_number = next_number

    def send(self, folder: Path, key: str, body: msgspec.Raw) -> bool:
        """Leave mail; False if the key was ever used."""
        name = layout.safe_name(key)
        if name in self.used:
            return False
        path = self._write(folder, key, body, "json")
        self.waiting = {**self.waiting, name: path}
        return True

    def mark(self, folder: Path, consumed: tuple[str, ...]) -> None:
        """Make tombstones of mail that a record has consumed."""
        keys = {layout.safe_name(key): key for key in consumed}
        unmarked = [name for name in keys if name in self.waiting or name not in self.used]
        if unmarked:
            layout.sync_folder(folder)  # no power failure may take the record back and leave the mark
        # renamed first: whoever reads meanwhile finds the letter as it was, or finds that it is gone
        for name in unmarked:
            if name in self.waiting:
                tombstone = self.waiting[name].with_suffix(".consumed")
                self.waiting[name].rename(tombstone)
                _blank(tombstone, keys[name])
            else:  # nobody posted it, and nobody will
                self._write(folder, keys[name], _NOTHING, "consumed")
        if len(unmarked) < len(keys):  # a process that was killed had renamed some
            _blank_all(folder, {name: key for name, key in keys.items() if name not in unmarked})
        self.waiting = {name: path for name, path in self.waiting.items() if name not in keys}

    def _write(self, folder: Path, key: str, body: msgspec.Raw, suffix: str) -> Path:
        name = layout.safe_name(key)
        path = folder / MAIL / f"{self._next_number:06d}-{name}.{suffix}"
        layout.make_folder(folder / MAIL)
        layout.write(path, StoredSignal(FORMAT, key, body))
        self.used.add(name)
        self._next_number += 1
        return path


def _blank(tombstone: Path, key: str) -> None:
    layout.write(tombstone, StoredSignal(FORMAT, key, _NOTHING), lasting=False)


def _blank_all(folder: Path, keys: dict[str, str]) -> None:
    for match in _matches_in(folder):
        if match[3] == "consumed" and match[2] in keys:
            _blank(folder / MAIL / match[0], keys[match[2]])


def signals_in(folder: Path) -> Signals:
    """The mail of a run, from the names of its files."""
    files = sorted((int(match[1]), match[2], match[3], match[0]) for match in _matches_in(folder))
    consumed = {key for _, key, suffix, _ in files if suffix == "consumed"}
    waiting = {key: folder / MAIL / name for _, key, _, name in files if key not in consumed}
    return Signals(waiting, consumed | set(waiting), files[-1][0] + 1 if files else 0)


def has_signals(folder: Path) -> bool:
    """Whether any mail was ever posted."""
    return bool(_matches_in(folder))


def forget_signals(folder: Path) -> None:
    """Delete all mail, and the tombstones."""
    for match in _matches_in(folder):
        (folder / MAIL / match[0]).unlink()
    if (folder / MAIL).is_dir() and not os.listdir(folder / MAIL):
        (folder / MAIL).rmdir()


def read_signal(path: Path) -> StoredSignal:
    signal = layout.read(path, _SIGNALS)
    if path.name.partition("-")[2] != f"{layout.safe_name(signal.key)}.json":
        raise CheckpointCorrupt(f"{path} is not what its name says: it holds {signal.key!r}; put it back or delete it")
    return signal


def _matches_in(folder: Path) -> list[re.Match[str]]:
    try:
        names = os.listdir(folder / MAIL)
    except FileNotFoundError:
        return []
    return [match for name in names if (match := SIGNAL_NAME.fullmatch(name))]
