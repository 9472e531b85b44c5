"""On PostgreSQL, workers of other processes are notified: a lost notification costs a second, nothing else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from stepwell import PostgresCheckpointStorage, admin
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.stores.postgres.notifications import channel_of
from stepwell.worker import Worker
from stepwell.worker import worker as worker_module
from tests.support.postgres_server import ask, dsn, fresh_schema
from tests.worker.samples import all_are, asking, counting, eventually, serving

pytestmark = pytest.mark.process


@pytest.fixture
def schema() -> Iterator[str]:
    with fresh_schema() as name:
        yield name


def opened(schema: str) -> BuiltInStorage:
    return PostgresCheckpointStorage(dsn(), schema=schema)


async def test_what_another_process_submits_or_sends_is_driven_at_once(
    schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "LOOK_EVERY", 60.0)
    async with opened(schema) as ours, opened(schema) as theirs:
        workflow = asking(theirs)
        async with serving(Worker(ours, [asking(ours)])):
            await asyncio.sleep(0.3)  # until it listens
            started = time.monotonic()
            await workflow.submit("tea or coffee?", run_id="r")
            await all_are(theirs, "waiting")
            await admin.respond(theirs, "r", "q", "tea")
            await all_are(theirs, "completed")
            assert time.monotonic() - started < 5


async def test_what_happens_together_shares_a_notification(schema: str) -> None:
    async with opened(schema) as ours, opened(schema) as theirs:
        workflow, heard = counting(theirs), 0

        def hear() -> None:
            nonlocal heard
            heard += 1

        assert ours._notifications is not None
        listening = asyncio.create_task(ours._notifications.listen(hear))
        await theirs.list_runs()
        await asyncio.sleep(0.3)
        before = heard
        await asyncio.gather(*(workflow.submit(0, run_id=f"r{n}") for n in range(50)))
        await asyncio.sleep(0.3)
        assert 1 <= heard - before <= 10
        listening.cancel()
        await asyncio.wait([listening])


async def test_a_worker_whose_notifications_are_cut_off_looks_every_second(
    schema: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(schema) as ours, opened(schema) as theirs, serving(Worker(ours, [counting(ours)])):
        cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE %s"

        async def is_cut() -> bool:
            return bool(await asyncio.to_thread(ask, cut, f"LISTEN {channel_of(schema)}%"))

        await eventually(is_cut)  # as soon as it listens
        await eventually(lambda: has_logged(caplog, "the dispatcher is away"))
        await counting(theirs).submit(0, run_id="r")
        await all_are(theirs, "completed")
    assert caplog.text.count("the dispatcher is away") == 1


async def has_logged(caplog: pytest.LogCaptureFixture, words: str) -> bool:
    return words in caplog.text


def test_two_schemas_have_two_channels_that_any_name_fits() -> None:
    names = ["stepwell", "x" * 63, 'a "quoted" name', "é"]
    assert len({channel_of(name) for name in names}) == 4
    assert all(len(channel_of(name)) < 63 and channel_of(name).isidentifier() for name in names)
