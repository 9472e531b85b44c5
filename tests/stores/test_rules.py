"""Every rule is true of every store."""

from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from holdfast.durable.ports import Store
from holdfast.stores.file import FileStore
from holdfast.stores.memory import MemoryStore
from holdfast.stores.postgres_store import PostgresStore
from holdfast.stores.sqlite import SQLiteStore
from postgres_server import dsn, fresh_schema
from store_rules import RULES, Rule
from store_rules_beside import RULES_BESIDE
from store_rules_claims import RULES_CLAIMS
from store_rules_runs import RULES_RUNS

STORES: dict[str, Callable[[Path, ExitStack], Store]] = {
    "memory": lambda folder, after: MemoryStore(),
    "sqlite": lambda folder, after: SQLiteStore(folder / "made" / "for" / "it.db"),
    "file": lambda folder, after: FileStore(folder / "made" / "for" / "it"),
    "postgres": lambda folder, after: PostgresStore(dsn(), schema=after.enter_context(fresh_schema())),
}


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    with ExitStack() as after:
        made = STORES[request.param](tmp_path, after)
        yield made
        await made.close()


@pytest.mark.parametrize("rule", RULES + RULES_BESIDE + RULES_RUNS + RULES_CLAIMS, ids=lambda rule: rule.__name__)
async def test_rule(rule: Rule, store: Store) -> None:
    await rule(store)
