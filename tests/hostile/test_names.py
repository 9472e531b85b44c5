"""Ids, names and tags of every kind: they work, or are refused in words; none leads out of its store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepwell import InMemoryCheckpointStorage, StepwellError
from stepwell.storage.built_in_storage import BuiltInStorage
from stepwell.storage.limits import LONGEST
from stepwell.stores.files.layout import run_name
from stepwell.stores.files.store import FileStore
from stepwell.stores.memory.store import MemoryStore
from stepwell.stores.postgres.store import PostgresStore
from stepwell.stores.sqlite.store import SQLiteStore
from tests.hostile.victim import only_typed
from tests.support.payments import AMOUNT, OUTPUTS, Payment, build
from tests.support.postgres_server import dsn, fresh_schema

ODD = {
    "up": "../../../tmp/x",
    "root": "/etc/passwd",
    "dots": "..",
    "hidden": ".new",
    "a log": "x~0123456789abc.jsonl",
    "the mark": "stepwell.json",
    "backslashes": "..\\..\\x",
    "NUL": "a\0b",
    "newlines": "a\nb\r\n",
    "SQL": "'; DROP TABLE commits; --",
    "a format": "%s {0} {run_id}",
    "right to left": "\u202eabc",
    "combining": "e\u0301" * 50,
    "emoji": "🙂" * 60,
    "blank": " ",
    "JSON": '{"$":"x"}',
    "long": "x" * 100_000,
    "10 MB": "y" * 10_000_000,
}


@pytest.fixture(params=["memory", "sqlite", "file", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    folder = tmp_path / "in" / "here"
    with ExitStack() as after:
        places: dict[str, Callable[[], Any]] = {
            "memory": MemoryStore,
            "sqlite": lambda: SQLiteStore(folder / "runs.db"),
            "file": lambda: FileStore(folder / "runs"),
            "postgres": lambda: PostgresStore(dsn(), schema=after.enter_context(fresh_schema())),
        }
        made = places[request.param]()
        yield made
        await made.close()
    outside = [path for path in tmp_path.rglob("*") if path.is_file() and not path.is_relative_to(folder)]
    assert outside == [], "something was written outside"


async def begun(begin: Callable[[], Awaitable[Any]]) -> Any:
    """Some arguments are refused at once, and others when it is awaited."""
    return await begin()


@pytest.mark.parametrize("name", ODD)
async def test_a_run_of_an_odd_name_works_or_is_refused(store: Any, name: str) -> None:
    odd, storage, payment = ODD[name], BuiltInStorage(store), Payment()
    errors = (StepwellError, ValueError) if len(odd) > LONGEST else (StepwellError,)
    works = await only_typed("run", payment.drive(store, odd), errors)
    if works:
        assert [run.run_id for run in await storage.list_runs()] == [odd]
        assert (await storage.event_history(odd))[0].run_id == odd
    else:
        assert len(odd) > 2000, "only what is too long may be refused"
    for what, begin in {
        "load": lambda: storage.load(odd),
        "list_checkpoints": lambda: storage.list_checkpoints(workflow_name=odd, before=odd, limit=3),
        "list_runs": lambda: storage.list_runs(workflow_name=odd, tags={odd: odd}),
        "pending_requests": lambda: storage.pending_requests(run_id=odd, workflow_name=odd),
        "delete": lambda: storage.delete(odd),
        "message_history": lambda: storage.message_history(odd),
        "respond": lambda: payment.workflow.run(run_id=odd, responses={odd: odd}, checkpoint_storage=storage),
        "fork": lambda: payment.workflow.run(checkpoint_id=odd, run_id=odd, checkpoint_storage=storage),
        "tags": lambda: payment.workflow.run(AMOUNT, run_id="tagged", tags={odd: odd}, checkpoint_storage=storage),
    }.items():
        await only_typed(what, begun(begin), errors)
    assert await Payment().drive(store, "plain") == OUTPUTS


NOT_IDS: list[Any] = ["x" * 10_001, "", 5, b"r", ["r"], {"r": 1}, print, "half \ud800 a character", True]


@pytest.mark.parametrize("id", NOT_IDS, ids=lambda id: repr(id)[:20])
async def test_what_is_no_id_is_refused_in_words(id: Any) -> None:
    storage = InMemoryCheckpointStorage()
    workflow = build(Payment().ledger)
    for argument in ("run_id", "checkpoint_id"):
        with pytest.raises(ValueError, match=argument):
            await workflow.run(checkpoint_storage=storage, **{argument: id})
    with pytest.raises(ValueError, match="run_id"):
        workflow.attach(id, checkpoint_storage=storage, drive=True)


NOT_TAGS: list[Any] = [
    "x",
    5,
    ["x"],
    {"a": 1},
    {1: "a"},
    {"": "a"},
    {"a": None},
    {"a": "x" * 10_001},
    {"\ud800": "a"},
    {"a": "\udfff"},
]


@pytest.mark.parametrize("tags", NOT_TAGS, ids=lambda tags: repr(tags)[:20])
async def test_what_are_no_tags_is_refused_in_words(tags: Any) -> None:
    with pytest.raises(ValueError, match="tag"):
        await build(Payment().ledger).run(AMOUNT, tags=tags, checkpoint_storage=InMemoryCheckpointStorage())


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=300), st.text(max_size=300))
def test_a_file_name_is_never_a_path_and_never_that_of_another(one: str, other: str) -> None:
    names = [run_name(text) for text in (one, other)]
    for name in names:
        folder, _, file = name.partition("/")
        assert (len(folder), file) == (2, Path(file).name)
        assert not file.startswith(".")
        assert len(file.encode()) < 200
    assert (names[0].lower() == names[1].lower()) == (one == other)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.text(st.characters(), min_size=1, max_size=40))
def test_a_run_of_any_name_works_or_is_refused_in_words(name: str) -> None:
    async def tried() -> None:
        store = MemoryStore()
        if await only_typed("run", Payment().drive(store, name), (StepwellError, ValueError)):
            assert [run.run_id for run in await BuiltInStorage(store).list_runs()] == [name]
        else:
            assert any("\ud800" <= letter <= "\udfff" for letter in name)

    asyncio.run(tried())


async def test_what_no_store_can_hold_is_not_found(store: Any) -> None:
    storage, half = BuiltInStorage(store), "a\udc80"
    await Payment().wait(store)
    assert await storage.list_runs() != []
    searches: list[dict[str, Any]] = [{"prefix": half}, {"text": half}, {"tags": {half: "x"}}, {"tags": {"x": half}}]
    for search in [{"workflow_name": half}, *searches]:
        assert await storage.list_runs(**search) == []
    assert await storage.pending_requests(workflow_name=half) == []
    assert await storage.pending_requests(run_id=half) == []
    assert await storage.get_run(half) is None
