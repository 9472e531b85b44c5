"""A durable function gives the same result wherever its process dies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from stepwell import Workflow, WorkflowEvent, WorkflowRunState
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.port import Store
from stepwell.stores.memory.store import MemoryStore
from stepwell.stores.postgres.store import PostgresStore
from stepwell.stores.sqlite.store import SQLiteStore
from stepwell.testing import FailingStore, FakeClock, crash_everywhere
from stepwell.testing.faults.wrapped_store import Call, WrappedStore
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


class StoppingStore(WrappedStore):
    """Calls `stop` at its n-th durable write, which it makes."""

    def __init__(self, at: int | None) -> None:
        super().__init__(MemoryStore())
        self.at = at
        self.stop: Callable[[], object] = list

    async def write(self, name: str, args: tuple[Any, ...], call: Call) -> Any:
        if self.writes == self.at:
            self.stop()
        return await call()


async def drive(function: Workflow[Any], *, stream: bool) -> Any:
    """Drive a run to its end: answer what it asks, and let time pass while it sleeps."""
    options: dict[str, Any] = {"message": None}
    while True:
        result = await function.run(run_id="r", stream=stream, **options)
        responses = {event.request_id: answer(event) for event in result.get_request_info_events()}
        options = {"responses": responses} if responses else {}
        if result.get_final_state() is WorkflowRunState.IDLE:
            return result.get_outputs()
        if result.wakes_at is not None and not responses:
            CLOCK[0](hours=2)


CLOCK: list[FakeClock] = []


async def drive_with_a_stop(program: Program, at: int | None, *, stream: bool) -> tuple[Any, Any, bool]:
    """Return what a program returns and has done if the task that drives it is cancelled at one of its writes."""
    program.ledger.clear()
    store = StoppingStore(at)
    function = program.function.build(checkpoint_storage=BuiltInStorage(store))
    with FakeClock() as clock:
        CLOCK[:] = [clock]
        driving = asyncio.create_task(drive(function, stream=stream))
        store.stop = driving.cancel
        with suppress(asyncio.CancelledError):
            await driving
        outputs = await drive(function, stream=stream)
    return outputs, program.ledger.effects, at is not None and store.writes >= at


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("seed", range(60, 68))
async def test_random_functions_may_be_stopped_at_every_write(seed: int, stream: bool) -> None:
    program = Program(seed)
    expected = (await drive_with_a_stop(program, None, stream=stream))[:2]
    for at in count(1):
        *found, was_stopped = await drive_with_a_stop(program, at, stream=stream)
        assert tuple(found) == expected, f"stopped at write {at}"
        if not was_stopped:
            break


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
    assert seen >= parts | {"inside", "child", "held"}
