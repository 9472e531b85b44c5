"""The signals of a run, as files.

<run>/mail/000012-<key>.json      a signal, numbered in the order of sending
<run>/mail/000012-<key>.consumed  a consumed signal: a tombstone, without the body
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from stepwell.errors import CheckpointCorrupt
from stepwell.stores.files import layout
from stepwell.stores.files.layout import FORMAT, SIGNALS_FOLDER, StoredFile

SIGNAL_NAME = re.compile(r"(\d{6,})-(.+)\.(json|consumed)", re.DOTALL)


class StoredSignal(StoredFile):
    """A signal as it is written to its file."""

    key: str
    body: msgspec.Raw


_NO_BODY = msgspec.Raw(b"null")
_SIGNALS = msgspec.json.Decoder(StoredSignal)


class Signals:
    """The signals of a run, pending and consumed, by the safe names of their keys.

    Only the holder of the run's lock changes it. Other threads may read `pending` meanwhile: the
    dict is replaced and never changed.
    """

    def __init__(self, pending: dict[str, Path], used: set[str], next_number: int) -> None:
        self.pending = pending  # not consumed, oldest first
        self.used = used  # every name that was ever used
        self._next_number = next_number

    def send(self, folder: Path, key: str, body: msgspec.Raw) -> bool:
        """Store a signal; False if the key was ever used."""
        name = layout.safe_name(key)
        if name in self.used:
            return False
        path = self._write(folder, key, body, "json")
        self.pending = {**self.pending, name: path}
        return True

    def consume(self, folder: Path, consumed: tuple[str, ...]) -> None:
        """Turn the signals that a record has consumed into tombstones."""
        keys = {layout.safe_name(key): key for key in consumed}
        unmarked = [name for name in keys if name in self.pending or name not in self.used]
        if unmarked:
            # The record must be durable first: a power failure must not undo the commit and leave
            # the tombstones.
            layout.sync_folder(folder)
        # Rename first, then remove the body: a concurrent reader finds the whole signal or none.
        for name in unmarked:
            if name in self.pending:
                tombstone = self.pending[name].with_suffix(".consumed")
                self.pending[name].rename(tombstone)
                _blank(tombstone, keys[name])
            else:  # never sent here: the tombstone keeps it from being sent later
                self._write(folder, keys[name], _NO_BODY, "consumed")
        # A killed process had renamed some, perhaps without removing the body.
        if len(unmarked) < len(keys):
            _blank_all(folder, {name: key for name, key in keys.items() if name not in unmarked})
        self.pending = {name: path for name, path in self.pending.items() if name not in keys}

    def _write(self, folder: Path, key: str, body: msgspec.Raw, suffix: str) -> Path:
        name = layout.safe_name(key)
        path = folder / SIGNALS_FOLDER / f"{self._next_number:06d}-{name}.{suffix}"
        layout.make_folder(folder / SIGNALS_FOLDER)
        layout.write(path, StoredSignal(FORMAT, key, body))
        self.used.add(name)
        self._next_number += 1
        return path


def _blank(tombstone: Path, key: str) -> None:
    layout.write(tombstone, StoredSignal(FORMAT, key, _NO_BODY), lasting=False)


def _blank_all(folder: Path, keys: dict[str, str]) -> None:
    for match in _matches_in(folder):
        if match[3] == "consumed" and match[2] in keys:
            _blank(folder / SIGNALS_FOLDER / match[0], keys[match[2]])


def signals_in(folder: Path) -> Signals:
    """Return the signals of a run, from the names of its files."""
    files = sorted((int(match[1]), match[2], match[3], match[0]) for match in _matches_in(folder))
    consumed = {key for _, key, suffix, _ in files if suffix == "consumed"}
    pending = {key: folder / SIGNALS_FOLDER / name for _, key, _, name in files if key not in consumed}
    return Signals(pending, consumed | set(pending), files[-1][0] + 1 if files else 0)


def has_signals(folder: Path) -> bool:
    """Return whether any signal was ever sent."""
    return bool(_matches_in(folder))


def delete_signals(folder: Path) -> None:
    """Delete all signals and tombstones."""
    for match in _matches_in(folder):
        (folder / SIGNALS_FOLDER / match[0]).unlink()
    if (folder / SIGNALS_FOLDER).is_dir() and not os.listdir(folder / SIGNALS_FOLDER):
        (folder / SIGNALS_FOLDER).rmdir()


def read_signal(path: Path) -> StoredSignal:
    signal = layout.read(path, _SIGNALS)
    if path.name.partition("-")[2] != f"{layout.safe_name(signal.key)}.json":
        raise CheckpointCorrupt(
            f"{path} does not belong under this name: it contains signal {signal.key!r}; move it back or delete it"
        )
    return signal


def _matches_in(folder: Path) -> list[re.Match[str]]:
    try:
        names = os.listdir(folder / SIGNALS_FOLDER)
    except FileNotFoundError:
        return []
    return [match for name in names if (match := SIGNAL_NAME.fullmatch(name))]
