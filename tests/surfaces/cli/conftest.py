"""What the tests of the command line share."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from stepwell import FileCheckpointStorage, PostgresCheckpointStorage, SQLiteCheckpointStorage
from stepwell.cli.app import stepwell
from tests.support.command_line import Place, Say, postgres_address
from tests.support.postgres_server import dsn, fresh_schema


@pytest.fixture(autouse=True)
def _nothing_is_said_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("STEPWELL_STORE", "STEPWELL_HOME", "STEPWELL_KEYS", "STEPWELL_KEYS_FILE", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def _clocks_show_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture(params=["sqlite", "file", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Each kind of store that lasts, new and empty."""
    if request.param == "postgres":
        with fresh_schema() as schema:
            yield Place(postgres_address(schema), PostgresCheckpointStorage(dsn(), schema=schema))
        return
    yield {
        "sqlite": lambda: Place("sqlite:///runs.db", SQLiteCheckpointStorage(tmp_path / "runs.db")),
        "file": lambda: Place("runs", FileCheckpointStorage(tmp_path / "runs")),
    }[request.param]()


@pytest.fixture
def sqlite(tmp_path: Path) -> Place:
    """A SQLite store with two runs."""
    made = Place("sqlite:///runs.db", SQLiteCheckpointStorage(tmp_path / "runs.db"))
    made.fill()
    return made


@pytest.fixture
def say() -> Say:
    """The program, called in this process with these arguments."""
    return lambda *arguments, **known: CliRunner().invoke(stepwell, list(arguments), **known)
