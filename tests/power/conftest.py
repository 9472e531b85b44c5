"""Recordings for the tests about power failures."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.lanes import mark_room

from .disk import Disk
from .order import is_rebuilt
from .recording import Call, compiled, read, record


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_room(__file__, items)


REPLAYED = "STEPWELL_RECORDING"
Record = Callable[..., "Recording"]


@dataclass(frozen=True)
class Recording:
    kind: str
    calls: Sequence[Call]
    home: Path

    def command(self) -> str:
        """How to do a test again with this very recording."""
        test = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]
        return f"{REPLAYED}={self.home} python -m pytest '{test}'"


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """Records the worker, once for each kind of store and fault."""
    if not sys.platform.startswith("linux"):
        pytest.skip("system calls are recorded by means of the dynamic linker of Linux")
    library = compiled(tmp_path_factory.mktemp("recorder"))
    made: dict[tuple[str, str], Recording] = {}

    def get(kind: str, fault: str = "none") -> Recording:
        if fault == "none" and os.environ.get(REPLAYED):
            home = Path(os.environ[REPLAYED])
            return Recording(kind, read(home), home)
        if (kind, fault) not in made:
            home = tmp_path_factory.mktemp(kind)
            calls = record(library, home, "tests.power.worker", kind, str(home / "disk"), fault)
            _check_that_nothing_is_missing(calls, home / "disk")
            made[kind, fault] = Recording(kind, calls, home)
            shutil.rmtree(home / "disk")
        return made[kind, fault]

    return get


def _check_that_nothing_is_missing(calls: Sequence[Call], folder: Path) -> None:
    """Whoever makes the same calls has the same files."""
    disk = Disk(is_rebuilt)
    for at, call in enumerate(calls):
        disk.take(at, call)
    real = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert real
    assert {path: content for path, (content, _) in disk.image().files.items()} == real
