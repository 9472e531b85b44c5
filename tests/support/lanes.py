"""The fast lane: tests that need no process and no server, and take no more than moments.

    pytest -m "not process and not long"      what `make fast` runs

A test that starts a process, forks or uses the database server has the marker `process`. That is not a matter of taste:
a test without the marker that does one of these fails, in every run, and the message says what to do. A marker is put
on a test, on a module (`pytestmark = pytest.mark.process`), or on a whole room of tests (`mark_room` in its conftest).
The parameter "postgres" brings it along. The marker `long` is for tests that merely take their time; the parameter
"file" brings it along, because every write is synced: the fast lane runs on the memory and SQLite stores.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.postgres_server import SERVER

EVENTS = {
    "subprocess.Popen": "starts a process",
    "os.posix_spawn": "starts a process",
    "os.system": "starts a process",
    "os.fork": "forks",
    "os.forkpty": "forks",
    SERVER: "uses the database server",
}
STORES = {"postgres": "process", "file": "long"}  # by the parameter of a test


def mark_room(conftest: str, items: Iterable[pytest.Item], marker: str = "process") -> None:
    """Put a marker on every test in the folder of a conftest: to be called in its `pytest_collection_modifyitems`."""
    room = Path(conftest).parent
    for item in items:
        if room in item.path.parents:
            item.add_marker(marker)


def marks_of(rule: object) -> list[pytest.MarkDecorator]:
    """The marker of a test of one rule of the stores: one of them needs a process that dies."""
    return [pytest.mark.process] if "dead_process" in str(rule) else []


class ProcessGuard:
    """Fails a test that starts a process or uses a server, unless it has the marker for that.

    Python reports both to audit hooks, whatever library does it. The hook raises at the spot; what raises in
    another thread, or is caught, makes the test fail when it ends.
    """

    def __init__(self) -> None:
        self._guarded: pytest.Item | None = None
        self._broken: str | None = None
        sys.addaudithook(self._hear)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            for store, marker in STORES.items():
                if store in parameters_of(item):
                    item.add_marker(marker)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._guarded = None if item.get_closest_marker("process") else item
        try:
            return (yield)
        finally:
            self._guarded = None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        self._broken = None
        result = yield
        if self._broken is not None:
            pytest.fail(self._broken, pytrace=False)
        return result

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._guarded is None or event not in EVENTS:
            return
        self._broken = (
            f"{self._guarded.nodeid} {EVENTS[event]} and lacks the marker for that: add @pytest.mark.process, or "
            f"`pytestmark = pytest.mark.process` to its module (see tests/support/lanes.py)"
        )
        pytest.fail(self._broken)


def parameters_of(item: pytest.Item) -> list[str]:
    """What a test is run with, as its name shows it: `[v5-postgres]`."""
    return item.callspec.id.split("-") if hasattr(item, "callspec") else []
