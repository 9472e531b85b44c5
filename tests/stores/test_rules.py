"""Every rule is true of every store, in every manner of use."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from stepwell.storage.integrity import VerifiedStore
from stepwell.storage.port import Store
from stepwell.stores.files.store import FileStore
from stepwell.stores.memory.store import MemoryStore
from stepwell.stores.postgres.store import PostgresStore
from stepwell.stores.sqlite.store import SQLiteStore
from stepwell.testing import OUTBOX_RULES, STORE_RULES, StoreRule
from tests.support.lanes import marks_of
from tests.support.postgres_server import dsn, fresh_schema

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


IN_ONE_PROCESS = {"memory"}  # nobody can open it a second time
CASES = [
    pytest.param(name, rule, marks=marks_of(rule))
    for name in STORES
    for rule in (*STORE_RULES, *OUTBOX_RULES)
    if rule.openings == 1 or name not in IN_ONE_PROCESS
]


@pytest.mark.parametrize(("name", "rule"), CASES, ids=str)
async def test_rule(name: str, rule: StoreRule, tmp_path: Path) -> None:
    with ExitStack() as after:
        await rule.check(STORES[name](tmp_path, after))


@pytest.mark.parametrize("name", [name for name in STORES if name != "postgres"])
def test_the_wrapper_of_a_store_of_ours_relies_on_its_promises(name: str, tmp_path: Path) -> None:
    with ExitStack() as after:
        wrapped = VerifiedStore(STORES[name](tmp_path, after)())
        assert (wrapped.completes_writes, wrapped.keeps_order) == (True, True)  # otherwise each commit costs a task
