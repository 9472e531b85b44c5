"""What a search in PostgreSQL reads: what is found, and not what is passed over."""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest

from stepwell.storage.lease import this_process
from stepwell.storage.port import ANY_RUN, CommitEffects, RunFilter, RunMetadata
from stepwell.stores.postgres import queries
from stepwell.stores.postgres.queries import QueryValues, checkpoints_query, inbox_query, runs_query
from stepwell.stores.postgres.store import PostgresStore
from stepwell.testing.store_rules.samples import fill, on, question, record
from tests.support.postgres_server import ask, dsn, fresh_schema

pytestmark = pytest.mark.process

ANY, BEFORE = "run_id = $1", f"run_id = $1 AND {queries.PLACE.replace('{value}', '$2')}"


def newest(where: str) -> str:
    return queries.NEWEST.replace("{where}", where).replace("{limit}", "5")


ASKED = question("r", "q")


def inbox(workflow: str | None = None, **asked: Any) -> tuple[str, list[Any]]:
    values = QueryValues()
    given = {"asked_by": None, "due_by": None, "past": None, "limit": 5, **asked}
    return inbox_query(values, {"workflow": workflow}, **given), values.bound


def begun_so(prefix: str) -> tuple[str, list[Any]]:
    values = QueryValues()
    return checkpoints_query(values, prefix, 5), values.bound


@pytest.fixture
def schema() -> Iterator[str]:
    with fresh_schema() as name:
        yield name


@pytest.fixture
async def store(schema: str) -> AsyncIterator[PostgresStore]:
    made = PostgresStore(dsn(), schema=schema)
    yield made
    await made.close()


def explained(schema: str, query: str, values: list[Any], *, really: bool = False) -> Any:
    """The plan of a query, when tables are not so small that reading all of them is the fastest."""
    how = "ANALYZE, TIMING OFF, SUMMARY OFF, FORMAT JSON" if really else "FORMAT JSON"
    with psycopg.connect(dsn(), cursor_factory=psycopg.RawCursor) as db:
        db.execute("SET enable_seqscan = off")
        db.execute("SET enable_bitmapscan = off")
        found = db.execute(f"EXPLAIN ({how}) {query}".replace("{schema}", schema).encode(), values).fetchone()
    assert found is not None
    return found[0][0]["Plan"]


@pytest.mark.parametrize(
    ("query", "values", "index"),
    [
        (queries.HEAD, ["r"], "commits_run_id_number_key"),
        (queries.CHAIN, ["r", 0], "commits_run_id_number_key"),
        (queries.HISTORY, ["r", 0, 9], "commits_run_id_number_key"),
        (queries.HISTORY_OF_OUTPUTS, ["r", 0, 9], "commits_with_outputs"),
        (queries.LOCATE, ["c"], "commits_by_checkpoint"),
        (newest(""), [], "commits_pkey"),
        (newest("WHERE workflow = $1"), ["w"], "commits_by_workflow"),
        (newest(f"WHERE {ANY}"), ["r"], "commits_by_run"),
        (newest(f"WHERE {BEFORE}"), ["r", "c"], "commits_by_run"),
        (queries.MAIL, ["r"], "mail_to_read"),
        (queries.MAILED, [["r"]], "mail_to_read"),
        (*inbox(), "requests_by_age"),
        (*inbox(asked_by=on(1), past=ASKED), "requests_by_age"),
        (*inbox(workflow="w", past=ASKED), "requests_by_workflow"),
        (*inbox(due_by=on(1), past=ASKED), "requests_by_deadline"),
        (*inbox(workflow="w", due_by=on(1)), "requests_by_workflow_and_deadline"),
        (*begun_so("0a1b"), "commits_by_checkpoint"),
        (queries.WAKES.replace("{where}", "WHERE wake IS NOT NULL AND wake <= $1"), ["2026"], "runs_to_wake"),
    ],
)
async def test_a_search_uses_its_index(
    store: PostgresStore, schema: str, query: str, values: list[Any], index: str
) -> None:
    await fill(store, "r", 1)
    plan = json.dumps(explained(schema, query, values))
    assert index in plan
    assert "Seq Scan" not in plan
    assert "Sort" not in plan


RUNS, COMMITS = 2000, 3  # with one in a hundred that is looked for


@pytest.fixture(scope="module")
def many() -> Iterator[str]:
    """A schema of many runs, most of which nobody looks for."""
    with fresh_schema() as name:
        yield name


async def filled(schema: str) -> None:
    if ask("SELECT to_regclass(%s)", f"{schema}.runs") != [(None,)]:
        return
    store = PostgresStore(dsn(), schema=schema)
    await store.append(record("first", 0, at=on(1)), CommitEffects(metadata=RunMetadata({"team": "red"}, "x")))
    await store.close()
    made = (
        f"SELECT 'r' || lpad(n::text, 5, '0') AS run_id, n, n %% 100 = 0 AS rare FROM generate_series(1, {RUNS}) AS n"
    )
    began = "to_char(timestamp '2026-01-01' + n * interval '1 minute', 'YYYY-MM-DD\"T\"HH24:MI:SS+00:00')"
    ask(
        f"""INSERT INTO {schema}.commits
                (run_id, number, checkpoint_id, workflow, status, iteration, at, frame, outputs, fleeting, body)
            SELECT run_id, number, run_id || '-' || number, CASE WHEN rare THEN 'rare' ELSE 'w' END,
                CASE WHEN rare THEN 'failed' ELSE 'done' END, number, {began}, true, false, false, '1'
            FROM ({made}) AS made, generate_series(0, {COMMITS - 1}) AS number""".replace("%%", "%")
    )
    ask(
        f"""INSERT INTO {schema}.runs (run_id, workflow, latest, status, began, called, caller)
            SELECT run_id, CASE WHEN rare THEN 'rare' ELSE 'w' END, {COMMITS - 1},
                CASE WHEN rare THEN 'failed' ELSE 'done' END, {began}, NOT rare AND n > {RUNS} / 2,
                CASE WHEN NOT rare AND n > {RUNS} / 2 THEN 'caller' END
            FROM ({made}) AS made""".replace("%%", "%")
    )
    ask(
        f"""INSERT INTO {schema}.tags (run_id, name, value, called, began)
            SELECT r.run_id, 'team', CASE r.workflow WHEN 'rare' THEN 'red' ELSE 'blue' END, called, began
            FROM {schema}.runs AS r WHERE r.run_id <> 'first'"""
    )
    ask(f"ANALYZE {schema}.runs")
    ask(f"ANALYZE {schema}.tags")
    ask(f"ANALYZE {schema}.commits")


def rows_read(plan: Any) -> int:
    own = (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"]
    return int(own if "Plans" not in plan else 0) + sum(rows_read(part) for part in plan.get("Plans", []))


@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"workflow": "rare"},
        {"status": "failed"},
        {"workflow": "rare", "status": "failed"},
        {"workflow": "rare", "status": "done"},
        {"tags": {"team": "red"}},
        {"tags": {"team": "red"}, "workflow": "rare", "status": "failed"},
        {"run_filter": RunFilter(prefix="r0019")},
        {"run_filter": RunFilter(prefix="r0019", since="2026"), "status": "done"},
        {"run_filter": RunFilter(since="2026-01-01T02", until="2026-01-01T04")},
    ],
    ids=str,
)
async def test_a_page_of_runs_costs_what_is_on_it(many: str, asked: dict[str, Any], past: bool, inner: bool) -> None:
    await filled(many)
    store = PostgresStore(dsn(), schema=many)
    first = await store.runs(**asked, inner=inner, limit=5)
    assert len(first) == (0 if asked.get("workflow") == "rare" and asked.get("status") == "done" else 5)
    last = first[-1] if past and first else None
    values = QueryValues()
    query = runs_query(
        values,
        asked.get("workflow"),
        asked.get("status"),
        asked.get("tags") or {},
        inner,
        last,
        limit=5,
        run_filter=asked.get("run_filter", ANY_RUN),
    )
    plan = explained(many, query, values.bound, really=True)
    assert rows_read(plan) <= RUNS / 20
    assert "Seq Scan" not in json.dumps(plan)
    await store.close()


async def test_a_page_of_entries_costs_what_is_on_it(many: str) -> None:
    await filled(many)
    for where, values in [("", []), ("WHERE workflow = $1", ["rare"]), (f"WHERE {BEFORE}", ["r00100", "r00100-2"])]:
        assert rows_read(explained(many, newest(where), values, really=True)) <= 6


async def test_a_commit_changes_the_row_of_its_run_in_place(store: PostgresStore, schema: str) -> None:
    fence = await store.acquire("r", this_process("mine"), seconds=60)
    for number in range(50):
        await store.append(
            record("r", number, status="done" if number == 49 else "running"), CommitEffects(fence=fence)
        )
    query = "SELECT n_tup_upd - n_tup_hot_upd FROM pg_stat_all_tables WHERE schemaname = %s AND relname = 'runs'"
    await store.close()  # what was counted is known when the connection ends
    assert ask("SELECT pg_stat_force_next_flush()") is not None
    assert ask(query, schema)[0][0] <= 2  # the first record, and the change of status
