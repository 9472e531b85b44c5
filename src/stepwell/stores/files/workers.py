"""The registry of workers in a directory: one file per worker."""

from __future__ import annotations

from pathlib import Path

import msgspec

from stepwell.storage import clock
from stepwell.storage.checked_reads import decode_stored
from stepwell.storage.durable_files import lock_file, safe_name, write_whole
from stepwell.storage.worker_registry import ALIVE_FOR, KEPT_FOR, WorkerRow
from stepwell.stores.files.layout import StoreFolder


class _WorkerFile(msgspec.Struct):
    name: str
    process: str
    seen: float  # seconds since 1970
    body: msgspec.Raw


_decode = msgspec.json.Decoder(_WorkerFile).decode


class WorkerFolder:
    """The folder of the workers. The methods keep the promises of `WorkerRegistry`, and block."""

    def __init__(self, folder: StoreFolder) -> None:
        self._folder = folder
        self._workers = folder.root / "workers"

    def announce(self, name: str, process: str, body: bytes) -> bool:
        mode = self._folder.prepare(self._workers, creates=True)
        for old_path, old in self._read_all():
            if old.seen < clock.seconds() - KEPT_FOR:
                old_path.unlink(missing_ok=True)
        path = self._path_of(name)
        with lock_file(path):
            worker = _read(path)
            if worker is not None and worker.process != process and worker.seen >= clock.seconds() - ALIVE_FOR:
                return False
            write_whole(path, msgspec.json.encode(_WorkerFile(name, process, clock.seconds(), msgspec.Raw(body))), mode)
        return True

    def withdraw(self, name: str, process: str) -> None:
        path = self._path_of(name)
        worker = _read(path)
        if worker is not None and worker.process == process:
            path.unlink(missing_ok=True)

    def read(self) -> list[WorkerRow]:
        self._folder.check()
        now = clock.seconds()
        rows = [WorkerRow(w.name, w.process, now - w.seen, bytes(w.body)) for _, w in self._read_all()]
        return sorted(rows, key=lambda row: row.name)

    def _read_all(self) -> list[tuple[Path, _WorkerFile]]:
        files = [(path, _read(path)) for path in self._workers.glob("*.json")]
        return [(path, worker) for path, worker in files if worker is not None]

    def _path_of(self, name: str) -> Path:
        return self._workers / f"{safe_name(name)}.json"


def _read(path: Path) -> _WorkerFile | None:
    """Return what a file says; None if there is none, or it is just being created."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    return decode_stored(_decode, text, f"the file {path}") if text else None
