"""Every rule is true of every store."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from holdfast.durable.ports import Store
from holdfast.stores.file import FileStore
from holdfast.stores.memory import MemoryStore
from holdfast.stores.postgres_store import PostgresStore
from holdfast.stores.sqlite import SQLiteStore
from holdfast.testing import STORE_RULES, StoreRule
from postgres_server import dsn, fresh_schema

Opening = Callable[[], Store]


def postgres(after: ExitStack) -> Opening:
    schema = after.enter_context(fresh_schema())
    return lambda: PostgresStore(dsn(), schema=schema)


STORES: dict[str, Callable[[Path, ExitStack], Opening]] = {
    "memory": lambda folder, after: MemoryStore,
    "sqlite": lambda folder, after: lambda: SQLiteStore(folder / "made" / "for" / "it.db"),
    "file": lambda folder, after: lambda: FileStore(folder / "made" / "for" / "it"),
    "postgres": lambda folder, after: postgres(after),
}


@pytest.fixture(params=STORES)
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opening]:
    with ExitStack() as after:
        yield STORES[request.param](tmp_path, after)


@pytest.mark.parametrize("rule", STORE_RULES, ids=str)
async def test_rule(rule: StoreRule, open_store: Opening) -> None:
    await rule.check(open_store)
