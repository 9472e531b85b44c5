"""The queries of the PostgreSQL store.

`{schema}` stands for the quoted schema, `{where}` for the conditions of a search. Values are always
bound as parameters (`QueryValues`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stepwell.storage.port import ANY_RUN, Pending, RunEntry, RunFilter, fold_case, prefix_end
from stepwell.stores.postgres.text_encoding import Escaped, escape

ENTRY = "run_id, number, checkpoint_id, workflow, status, iteration, at, frame, outputs, fleeting"
RECORD = f"{ENTRY}, convert_to(body, 'UTF8')"
REQUEST = "run_id, request_id, workflow, executor, request_type, response_type, schema, at, deadline"

# ---------------------------------------------------------------------- records

HEAD = f"SELECT {RECORD} FROM {{schema}}.commits WHERE run_id = $1 ORDER BY number DESC LIMIT 1"
CHAIN = f"""
SELECT {RECORD} FROM {{schema}}.commits
WHERE run_id = $1 AND number <= $2 AND number >= coalesce((
    SELECT number FROM {{schema}}.commits WHERE run_id = $1 AND number <= $2 AND frame ORDER BY number DESC LIMIT 1
), $2)
ORDER BY number
"""
PART = f"SELECT {RECORD} FROM {{schema}}.commits WHERE run_id = $1 AND number > $2 AND number <= $3"
HISTORY = f"{PART} ORDER BY number"
HISTORY_OF_OUTPUTS = f"{PART} AND outputs ORDER BY number"
LOCATE = f"SELECT {ENTRY} FROM {{schema}}.commits WHERE checkpoint_id = $1 ORDER BY seq DESC LIMIT 1"
CHECKPOINTS = f"SELECT {ENTRY} FROM {{schema}}.commits WHERE {{where}} ORDER BY checkpoint_id, seq LIMIT {{limit}}"
NEWEST = f"SELECT {ENTRY} FROM {{schema}}.commits {{where}} ORDER BY seq DESC LIMIT {{limit}}"
PLACE = "seq < (SELECT seq FROM {schema}.commits WHERE checkpoint_id = {value} ORDER BY seq DESC LIMIT 1)"
# ---------------------------------------------------------------------- superstep log, signals, requests, wake-up times

RECALL = "SELECT key, convert_to(body, 'UTF8') FROM {schema}.memory WHERE run_id = $1 AND place = $2"
MAIL = "SELECT key, convert_to(body, 'UTF8') FROM {schema}.mail WHERE run_id = $1 AND NOT consumed ORDER BY seq"
MAILED = """
SELECT asked.run_id FROM unnest($1::text[]) AS asked (run_id)
WHERE EXISTS (SELECT FROM {schema}.mail AS m WHERE m.run_id = asked.run_id AND NOT m.consumed)
"""
PENDING = f"SELECT {REQUEST} FROM {{schema}}.requests WHERE {{where}} ORDER BY {{order}}, run_id, seq LIMIT {{limit}}"
# If the last request of the page was closed meanwhile, what its run asked at the same moment comes
# again.
PAST = """({order}, run_id, seq) > ({at}, {run}, coalesce((
    SELECT q.seq FROM {schema}.requests AS q WHERE q.run_id = {run} AND q.request_id = {request}), 0))
"""
WAKES = "SELECT run_id, workflow, wake FROM {schema}.runs {where} ORDER BY wake, run_id"

# ---------------------------------------------------------------------- maintenance

TABLES = ("commits", "runs", "tags", "requests", "mail", "memory")
SIZE = """
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class AS c
WHERE c.relnamespace = to_regnamespace($1) AND c.relkind = 'r'
"""
# ---------------------------------------------------------------------- the list of runs

RUN = """
SELECT r.run_id, r.workflow, r.status, c.number, c.checkpoint_id, c.iteration, c.at, r.began,
    (SELECT jsonb_object_agg(t.name, t.value) FROM {schema}.tags AS t WHERE t.run_id = r.run_id), r.caller
FROM {schema}.runs AS r JOIN {schema}.commits AS c ON c.run_id = r.run_id AND c.number = r.latest
WHERE r.run_id = $1
"""

# The page is found in an index of `runs` or `tags`; only the runs on it are joined with their
# newest record.
RUNS = """
SELECT page.run_id, page.workflow, page.status, c.number, c.checkpoint_id, c.iteration, c.at, page.began,
    (SELECT jsonb_object_agg(t.name, t.value) FROM {schema}.tags AS t WHERE t.run_id = page.run_id), page.caller
FROM ({pages}) AS page JOIN {schema}.commits AS c ON c.run_id = page.run_id AND c.number = page.latest
ORDER BY page.began DESC, page.run_id DESC LIMIT {limit}
"""
PAGE = """(
SELECT r.run_id, r.workflow, r.status, r.latest, r.began, r.caller FROM {source}
WHERE {conditions} ORDER BY {first}.began DESC, {first}.run_id DESC LIMIT {limit})
"""
TAGGED = "EXISTS (SELECT FROM {schema}.tags AS t WHERE t.run_id = r.run_id AND t.name = {name} AND t.value = {value})"
HAS_TEXT = """
(strpos(lower(r.run_id), {text}) > 0 OR strpos(lower(r.workflow), {text}) > 0 OR EXISTS (
    SELECT FROM {schema}.tags AS o
    WHERE o.run_id = r.run_id AND (strpos(lower(o.name), {text}) > 0 OR strpos(lower(o.value), {text}) > 0)))
"""
CHANGED = "EXISTS (SELECT FROM {schema}.commits AS n WHERE n.run_id = r.run_id AND n.number = r.latest AND {met})"


class QueryValues:
    """The values of a query.

    Calling it binds a value and returns its placeholder (`$1`, `$2`, ...).
    """

    def __init__(self) -> None:
        self.bound: list[str | int | None] = []

    def __call__(self, value: str | int | None) -> str:
        self.bound.append(value)
        return f"${len(self.bound)}"


def runs_query(
    values: QueryValues,
    workflow: str | None,
    status: str | None,
    tags: Mapping[str, str],
    inner: bool,
    past: RunEntry | None,
    limit: int | None,
    run_filter: RunFilter = ANY_RUN,
) -> str:
    """Return the query for a page of runs, as `Store.runs` promises."""
    conditions, first = [], "t" if tags else "r"
    for number, (name, value) in enumerate(tags.items()):
        if number == 0:  # the index of the first tag leads; the other tags are checked for each run
            conditions.append(f"t.name = {values(name)} AND t.value = {values(value)}")
        else:
            conditions.append(TAGGED.replace("{name}", values(name)).replace("{value}", values(value)))
    if workflow is not None:
        conditions.append(f"r.workflow = {values(workflow)}")
    if status is not None:
        conditions.append(f"r.status = {values(status)}")
    conditions += _filter_conditions(values, run_filter, first)
    # By position, not by offset: runs that start or are removed between two pages shift nothing.
    if past is not None:
        conditions.append(f"({first}.began, {first}.run_id) < ({values(past.began)}, {values(past.run_id)})")
    source = "{schema}.tags AS t JOIN {schema}.runs AS r ON r.run_id = t.run_id" if tags else _runs(values, run_filter)
    # Runs without and with a caller are two searches: each reads an index in order and stops at the
    # limit.
    sides = [f"NOT {first}.called"] + ([f"{first}.called"] if inner else [])
    pages = [
        PAGE.replace("{source}", source)
        .replace("{first}", first)
        .replace("{conditions}", " AND ".join([side, "r.began IS NOT NULL", *conditions]))
        for side in sides
    ]
    return RUNS.replace("{pages}", " UNION ALL ".join(pages)).replace("{limit}", f"{values(limit)}::bigint")


def _runs(values: QueryValues, run_filter: RunFilter) -> str:
    """Return the table of runs or, for an id prefix, a subquery that searches the primary key.

    OFFSET 0 keeps the planner from merging the subquery with the other conditions and choosing a
    different index.
    """
    if not run_filter.prefix:
        return "{schema}.runs AS r"
    return f"(SELECT * FROM {{schema}}.runs WHERE {_starts_with('run_id', values, run_filter.prefix)} OFFSET 0) AS r"


def _filter_conditions(values: QueryValues, run_filter: RunFilter, first: str) -> Iterator[str]:
    if run_filter.prefix and first == "t":
        yield _starts_with("t.run_id", values, run_filter.prefix)
    if run_filter.text is not None:
        yield HAS_TEXT.replace("{text}", f"{values(fold_case(run_filter.text))}::text")
    if run_filter.since is not None:
        yield f"{first}.began >= {values(run_filter.since)}"
    if run_filter.until is not None:
        yield f"{first}.began < {values(run_filter.until)}"
    if run_filter.changed_since is not None:
        yield CHANGED.replace("{met}", f"n.at >= {values(run_filter.changed_since)}")
    if run_filter.changed_until is not None:
        yield CHANGED.replace("{met}", f"n.at < {values(run_filter.changed_until)}")


def _starts_with(column: str, values: QueryValues, prefix: str) -> str:
    # A range instead of LIKE: it needs no escaping and always uses the index.
    past = prefix_end(escape(prefix))
    return f"{column} >= {values(prefix)}" + ("" if past is None else f" AND {column} < {values(Escaped(past))}")


def checkpoints_query(values: QueryValues, prefix: str, limit: int) -> str:
    """Return the query for the checkpoints whose ids start with `prefix`."""
    query = CHECKPOINTS.replace("{where}", _starts_with("checkpoint_id", values, prefix))
    return query.replace("{limit}", f"{values(limit)}::bigint")


def inbox_query(
    values: QueryValues,
    columns: Mapping[str, str | None],
    asked_by: str | None,
    due_by: str | None,
    past: Pending | None,
    limit: int | None,
) -> str:
    """Return the query for a page of open requests, as `Store.pending` promises."""
    order = "at" if due_by is None else "deadline"
    conditions = [f"{column} = {values(value)}" for column, value in columns.items() if value is not None]
    if asked_by is not None:
        conditions.append(f"at <= {values(asked_by)}")
    if due_by is not None:
        conditions.append(f"deadline IS NOT NULL AND deadline <= {values(due_by)}")
    if past is not None:
        at = past.at if due_by is None else past.deadline or ""
        last = {"{at}": at, "{run}": past.run_id, "{request}": past.request_id}
        conditions.append(PAST)
        for name, value in last.items():
            conditions[-1] = conditions[-1].replace(name, values(value))
    where = " AND ".join(conditions) or "true"
    query = PENDING.replace("{where}", where).replace("{order}", order)
    return query.replace("{limit}", f"{values(limit)}::bigint")
