"""A durable function gives the same result wherever its process dies."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from stepwell import WorkflowEvent
from stepwell.storage.port import Store
from stepwell.stores.postgres.store import PostgresStore
from stepwell.stores.sqlite.store import SQLiteStore
from stepwell.testing import FailingStore, crash_everywhere
from tests.functional.programs import Program
from tests.support.postgres_server import fresh_database


def answer(event: WorkflowEvent) -> str:
    return f"yes to {event.data}"


@pytest.mark.parametrize("seed", range(24))
async def test_random_functions_survive_a_crash_at_every_write(seed: int) -> None:
    program = Program(seed)
    report = await crash_everywhere(program.function, answer=answer, ledger=program.ledger)
    assert report.writes > 1


@pytest.mark.parametrize("seed", range(40, 46))
async def test_random_functions_survive_a_store_that_fails(seed: int) -> None:
    program = Program(seed)
    await crash_everywhere(program.function, answer=answer, ledger=program.ledger, fault=FailingStore)


@pytest.mark.parametrize("seed", range(50, 52))
async def test_random_functions_survive_on_sqlite(seed: int, tmp_path: Path) -> None:
    program, numbers = Program(seed), count()

    def store() -> Store:
        return SQLiteStore(tmp_path / f"{next(numbers)}.db")

    await crash_everywhere(program.function, answer=answer, ledger=program.ledger, store=store)


@pytest.mark.process
async def test_a_random_function_survives_on_postgresql() -> None:
    program, numbers = Program(53), count()
    with fresh_database() as dsn:

        def store() -> Store:
            return PostgresStore(dsn, schema=f"s{next(numbers)}")

        await crash_everywhere(program.function, answer=answer, ledger=program.ledger, store=store)


def test_the_programs_have_every_part() -> None:
    seen = set[str]()

    def look(parts: object) -> None:
        if isinstance(parts, (list, tuple)):
            for part in parts:
                look(part)
        elif isinstance(parts, str):
            seen.add(parts)

    for seed in range(24):
        look(Program(seed).parts)
    parts = {"step", "plain", "sleep", "park", "caught", "remembered", "patch", "ask", "gather", "group", "loop"}
    assert seen >= parts | {"inside", "child"}
