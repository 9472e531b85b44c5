"""What a search in PostgreSQL reads: what is found, and not what is passed over."""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from stepwell.storage.filters import CheckpointFilter, ReadyFilter, RequestFilter, RunFilter
from stepwell.storage.ids import run_hash
from stepwell.storage.lease import this_process
from stepwell.storage.stored_values import CommitEffects, Entry, RunMetadata
from stepwell.stores.postgres import queries
from stepwell.stores.postgres.queries import Search, checkpoints_query, ready_query, requests_query, runs_query
from stepwell.stores.postgres.store import PostgresStore
from stepwell.stores.postgres.values import encode
from stepwell.testing.store_rules.samples import fill, id_of, on, question, record
from tests.support.postgres_server import ask, dsn, fresh_schema

pytestmark = pytest.mark.process

ASKED = question("r", "q")


def built(build: Any, *criteria: Any) -> tuple[str, list[Any]]:
    """A query, and the values that are bound to it."""
    search = Search()
    return build(search, *criteria), search.values


@pytest.fixture
def schema() -> Iterator[str]:
    with fresh_schema() as name:
        yield name


@pytest.fixture
async def store(schema: str) -> AsyncIterator[PostgresStore]:
    made = PostgresStore(dsn(), schema=schema)
    yield made
    await made.close()


def explained(schema: str, query: str, values: list[Any], *, really: bool = False, may_scan: bool = False) -> Any:
    """The plan of a query, when tables are not so small that reading all of them is the fastest."""
    how = "ANALYZE, TIMING OFF, SUMMARY OFF, FORMAT JSON" if really else "FORMAT JSON"
    with psycopg.connect(dsn(), cursor_factory=psycopg.RawCursor) as db:
        db.execute(f"SET enable_seqscan = {may_scan}")
        db.execute("SET enable_bitmapscan = off")
        texts = [None if value is None else value.decode() for value in encode(*values)]
        found = db.execute(f"EXPLAIN ({how}) {query}".replace("{schema}", schema).encode(), texts).fetchone()
    assert found is not None
    return found[0][0]["Plan"]


@pytest.mark.parametrize(
    ("query", "values", "index"),
    [
        (queries.HISTORY, ["r", 0, 9], "commits_pkey"),
        (queries.HISTORY_OF_OUTPUTS, ["r", 0, 9], "commits_with_outputs"),
        (queries.LOCATE, [id_of("r", 0), run_hash("r"), 0], "runs_by_hash"),
        (queries.LOCATE, ["by hand", None, None], "commits_with_foreign_ids"),
        (*built(checkpoints_query, CheckpointFilter(run_id="r"), None, 5), "commits_pkey"),
        (*built(checkpoints_query, CheckpointFilter(run_id="r"), record("r", 3).entry, 5), "commits_pkey"),
        (queries.PENDING_SIGNALS, ["r"], "signals_to_consume"),
        (*built(requests_query, RequestFilter(), None, 5), "requests_by_age"),
        (*built(requests_query, RequestFilter(asked_until=on(1)), ASKED, 5), "requests_by_age"),
        (*built(requests_query, RequestFilter(workflow="w"), ASKED, 5), "requests_by_workflow"),
        (*built(requests_query, RequestFilter(due_until=on(1)), ASKED, 5), "requests_by_deadline"),
        (*built(requests_query, RequestFilter("w", due_until=on(1)), None, 5), "requests_by_workflow_and_deadline"),
        (*built(ready_query, ReadyFilter("2026", resting=("IDLE",)), (0, "", ""), 5), "runs_by_priority"),
        (*built(ready_query, ReadyFilter("2026", "w", resting=("IDLE",)), (0, "2025", "r"), 5), "signals_to_consume"),
    ],
)
async def test_a_search_uses_its_index(
    store: PostgresStore, schema: str, query: str, values: list[Any], index: str
) -> None:
    await fill(store, "r", 1)
    plan = json.dumps(explained(schema, query, values))
    assert index in plan
    assert "Seq Scan" not in plan
    # Few runs have signals that nobody has applied yet: those are sorted.
    assert "Sort" not in plan or query == queries.LOCATE or "since" in query


async def test_runs_that_can_be_driven_are_found_first_and_sorted(store: PostgresStore, schema: str) -> None:
    await fill(store, "r", 1)
    plan = json.dumps(explained(schema, *built(runs_query, RunFilter(due_by="2026", tags={"a": "1"}), None, 5)))
    assert "runs_by_priority" in plan
    assert "signals_to_consume" in plan
    assert "Seq Scan" not in plan


@pytest.mark.parametrize("before", [None, record("r", 3).entry])
async def test_decisions_are_found_by_their_index(store: PostgresStore, schema: str, before: Entry | None) -> None:
    await fill(store, "r", 1)
    plan = json.dumps(explained(schema, *built(checkpoints_query, CheckpointFilter(decisions=True), before, 5)))
    assert "commits_with_decisions" in plan
    assert "Seq Scan" not in plan


async def test_the_newest_record_is_found_without_statistics_and_without_reading_the_run(
    store: PostgresStore, schema: str
) -> None:
    for number in range(2):
        await store.append(record("r", number, is_snapshot=True))
    copied = "run, checkpoint_id, status, iteration, at, is_snapshot, outputs, latest_only, foreign_id, body"
    ask(
        f"""INSERT INTO {schema}.commits ({copied}, number)
            SELECT {copied}, n FROM {schema}.commits, generate_series(2, 20000) AS n WHERE number = 1"""
    )
    with psycopg.connect(dsn()) as db:
        read = f"SELECT * FROM {schema}.read('r', NULL, false)".encode()
        assert len(db.execute(read).fetchall()) == 1
        found = db.execute(b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + read).fetchone()
    assert found is not None
    assert found[0][0]["Plan"]["Shared Hit Blocks"] < 100  # the run has several hundred


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
    made = f"SELECT 'r' || lpad(n::text, 5, '0') AS run_id, n, n % 100 = 0 AS rare FROM generate_series(1, {RUNS}) AS n"
    began = "to_char(timestamp '2026-01-01' + n * interval '1 minute', 'YYYY-MM-DD\"T\"HH24:MI:SS+00:00')"
    ask(
        f"""INSERT INTO {schema}.runs
                (run_id, hash, workflow, number, status, iteration, checkpoint_id, at, began, is_child, caller, tags,
                parent_run, parent_id, parent_number)
            SELECT run_id, n::bigint << 40, CASE WHEN rare THEN 'rare' ELSE 'w' END, {COMMITS - 1},
                CASE WHEN rare THEN 'failed' ELSE 'done' END, 2, run_id || '-2', {began}, {began},
                NOT rare AND n > {RUNS} / 2, CASE WHEN NOT rare AND n > {RUNS} / 2 THEN 'caller' END,
                jsonb_build_object('team', CASE WHEN rare THEN 'red' ELSE 'blue' END),
                CASE WHEN rare THEN 'first' WHEN n % 3 = 0 THEN 'other' END, 'id', 0
            FROM ({made}) AS made"""
    )
    ask(
        f"""INSERT INTO {schema}.commits
                (run, number, iteration, is_snapshot, outputs, latest_only, foreign_id, checkpoint_id, status, at, body)
            SELECT key, n, n, true, false, false, false, run_id || '-' || n, status, began, '1'
            FROM {schema}.runs, generate_series(0, {COMMITS - 1}) AS n WHERE run_id <> 'first'"""
    )
    ask(
        f"""INSERT INTO {schema}.tags (run, name, value, is_child, began, run_id)
            SELECT key, 'team', tags->>'team', is_child, began, run_id FROM {schema}.runs WHERE run_id <> 'first'"""
    )
    ask(f"ANALYZE {schema}.runs")
    ask(f"ANALYZE {schema}.tags")
    ask(f"ANALYZE {schema}.commits")


def rows_read(plan: Any) -> int:
    own = (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"]
    return int(own if "Plans" not in plan else 0) + sum(rows_read(part) for part in plan.get("Plans", []))


@pytest.mark.parametrize("children", [False, True])
@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize(
    "criteria",
    [
        RunFilter(),
        RunFilter(workflow="rare"),
        RunFilter(status="failed"),
        RunFilter(workflow="rare", status="failed"),
        RunFilter(workflow="rare", status="done"),
        RunFilter(tags={"team": "red"}),
        RunFilter(parent="first"),
        RunFilter(tags={"team": "red"}, workflow="rare", status="failed"),
        RunFilter(prefix="r0019"),
        RunFilter(prefix="r0019", since="2026", status="done"),
        RunFilter(since="2026-01-01T02", until="2026-01-01T04"),
    ],
    ids=str,
)
async def test_a_page_of_runs_costs_what_is_on_it(many: str, criteria: RunFilter, past: bool, children: bool) -> None:
    await filled(many)
    store = PostgresStore(dsn(), schema=many)
    criteria = replace(criteria, children=children)
    first = await store.runs(criteria, limit=5)
    assert len(first) == (0 if (criteria.workflow, criteria.status) == ("rare", "done") else 5)
    query, values = built(runs_query, criteria, first[-1] if past and first else None, 5)
    plan = explained(many, query, values, really=True)
    assert rows_read(plan) <= RUNS / 20
    assert "Seq Scan" not in json.dumps(plan)
    await store.close()


async def test_a_page_of_checkpoints_costs_what_is_on_it_and_a_look_at_each_run(many: str) -> None:
    await filled(many)
    for criteria, most in [
        (CheckpointFilter(), 2 * RUNS + 20),
        (CheckpointFilter(workflow="rare"), 2 * RUNS / 100 + 20),
        (CheckpointFilter(run_id="r00100"), 6),
        (CheckpointFilter(prefix="0001"), 300),
    ]:
        query, values = built(checkpoints_query, criteria, None, 5)
        assert rows_read(explained(many, query, values, really=True, may_scan=most > RUNS)) <= most


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
