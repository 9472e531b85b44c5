"""What several rooms of tests share."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from stepwell import (
    FileCheckpointStorage,
    InMemoryCheckpointStorage,
    PostgresCheckpointStorage,
    SQLiteCheckpointStorage,
)
from stepwell.storage import clock
from stepwell.storage.built_in_storage import BuiltInStorage
from tests.support.lanes import ProcessGuard
from tests.support.postgres_server import dsn, fresh_schema

slow = [HealthCheck.too_slow, HealthCheck.data_too_large]  # how fast a machine is says nothing about the code
settings.register_profile("luck", deadline=None, suppress_health_check=slow)  # which finds things
settings.register_profile("ci", settings.get_profile("luck"), derandomize=True)  # what is built must not depend on it
settings.load_profile("ci" if os.environ.get("CI") else "luck")

# programs that tests start find `tests` as the tests do
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]))


class SaidAtOnce:
    """Says a failure when it happens: whoever stops the tests half-way has then heard of it."""

    def __init__(self, terminal: Any) -> None:
        self._terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._terminal.write_line(f"\nFAILED {report.nodeid} ({report.when})\n{report.longreprtext}")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(ProcessGuard())
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(SaidAtOnce(terminal))


@pytest.fixture(params=["memory", "sqlite", "file"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Each of the built-in storages, new and empty."""
    return _make_storage(request.param, tmp_path)


def _make_storage(kind: str, folder: Path) -> BuiltInStorage:
    made: dict[str, Callable[[], BuiltInStorage]] = {
        "memory": lambda: InMemoryCheckpointStorage(),
        "sqlite": lambda: SQLiteCheckpointStorage(folder / "runs.db"),
        "file": lambda: FileCheckpointStorage(folder / "runs"),
    }
    return made[kind]()


@pytest.fixture(params=["memory", "sqlite", "file", pytest.param("postgres", marks=pytest.mark.process)])
def every_storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """Each of the built-in storages and PostgreSQL, new and empty."""
    if request.param != "postgres":
        yield _make_storage(request.param, tmp_path)
        return
    from tests.support.postgres_server import dsn, fresh_schema  # lazy: it starts a server

    with fresh_schema() as schema:
        yield PostgresCheckpointStorage(dsn(), schema=schema)


@pytest.fixture(params=["memory", "sqlite", "file", "postgres"])
def everywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """Each of the built-in storages, new and empty; called with its options."""
    if request.param == "postgres":
        with fresh_schema() as schema:
            yield lambda **options: PostgresCheckpointStorage(dsn(), schema=schema, **options)
        return
    yield {
        "memory": lambda **options: InMemoryCheckpointStorage(**options),
        "sqlite": lambda **options: SQLiteCheckpointStorage(tmp_path / "runs.db", **options),
        "file": lambda **options: FileCheckpointStorage(tmp_path / "runs", **options),
    }[request.param]


class Later:
    """A clock that a test moves on: it goes as the machine's does, so much ahead of it."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def __call__(self, *, minutes: float = 0, seconds: float = 0) -> None:
        """So much time has passed."""
        self._ahead += timedelta(minutes=minutes, seconds=seconds).total_seconds()

    def seconds(self) -> float:
        return time.time() + self._ahead


@pytest.fixture
def later() -> Iterator[Later]:
    """Says that time has passed."""
    moved = Later()
    clock.set_source(moved.seconds)
    yield moved
    clock.set_source()
