"""Every rule is true of every store."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from holdfast.durable.ports import Store
from holdfast.stores.file import FileStore
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SQLiteStore
from store_rules import RULES, Rule
from store_rules_beside import RULES_BESIDE

STORES: dict[str, Callable[[Path], Store]] = {
    "memory": lambda folder: MemoryStore(),
    "sqlite": lambda folder: SQLiteStore(folder / "made" / "for" / "it.db"),
    "file": lambda folder: FileStore(folder / "made" / "for" / "it"),
}


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    made = STORES[request.param](tmp_path)
    yield made
    await made.close()


@pytest.mark.parametrize("rule", RULES + RULES_BESIDE, ids=lambda rule: rule.__name__)
async def test_rule(rule: Rule, store: Store) -> None:
    await rule(store)
