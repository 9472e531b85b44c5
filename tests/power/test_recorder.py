"""The recorder misses nothing, and the disk that is made of what it recorded is the real one."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from .conftest import Record
from .disk import Disk
from .recording import compiled, record


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs the dynamic linker of Linux")
def test_whoever_makes_the_same_calls_has_the_same_files(tmp_path: Path) -> None:
    calls = record(compiled(tmp_path), tmp_path / "home", "tests.power.scribbler", str(tmp_path / "home" / "disk"))
    disk, root = Disk(), tmp_path / "home" / "disk"
    for at, call in enumerate(calls):
        disk.take(at, call)
    found = {str(path.relative_to(root)): path for path in root.rglob("*")}
    files = {path: (real.read_bytes(), real.stat().st_mtime_ns) for path, real in found.items() if real.is_file()}
    image = disk.image()
    assert sorted(image.folders) == sorted(path for path, real in found.items() if real.is_dir()) == ["a", "a/c"]
    assert {path: content for path, (content, _) in image.files.items()} == {path: files[path][0] for path in files}
    assert sorted(files) == ["a/c/linked", "a/moved"]
    assert image.files["a/moved"][1] == files["a/moved"][1] == 10**18
    synced = {path: content for path, (content, _) in disk.image([], lambda file: ()).files.items()}
    moved = b"in pieces".ljust(50, b"\0") + b"more pieces".ljust(50, b"\0") + b"far out".ljust(100, b"\0")
    assert synced == {"a/moved": moved, "a/one": b"written and appended"}


@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_the_calls_of_a_store_are_seen(recording: Record, kind: str) -> None:
    """Those of SQLite are made in C, by a library that was not compiled for us."""
    calls = recording(kind).calls
    count = Counter(call.what for call in calls)
    assert count["write"] > 30
    assert count["sync"] > 30
    assert count["mark"] > 50
    if kind == "sqlite":
        assert any(call.what == "open" and call.path.endswith("-wal") for call in calls)
    else:
        assert count["rename"] >= 1
