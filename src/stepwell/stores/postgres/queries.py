"""The queries of the PostgreSQL store.

`{schema}` stands for the quoted schema. The values of a search are always bound as parameters.
"""

from __future__ import annotations

from collections.abc import Iterator

from stepwell.storage.filters import CheckpointFilter, RequestFilter, RunFilter, fold_case, prefix_end
from stepwell.storage.ids import run_hashes_for
from stepwell.storage.stored_values import Entry, RequestEntry, RunEntry
from stepwell.stores.postgres.values import escape

ENTRY = """
r.run_id, c.number, c.checkpoint_id, r.workflow, c.status, c.iteration, c.at, c.is_snapshot, c.outputs, c.latest_only
""".strip()
RUN = "r.run_id, r.workflow, r.status, r.number, r.checkpoint_id, r.iteration, r.at, r.began, r.tags, r.caller"
REQUEST = "run_id, request_id, workflow, executor, request_type, response_type, schema, at, deadline"
COMMITS = "{schema}.runs AS r JOIN {schema}.commits AS c ON c.run = r.key"

# ---------------------------------------------------------------------- of one run

READ = "SELECT * FROM {schema}.read($1, $2, $3)"
HISTORY = f"""
SELECT {ENTRY}, convert_to(c.body, 'UTF8') FROM {COMMITS}
WHERE r.run_id = $1 AND c.number > $2 AND c.number <= $3 ORDER BY c.number
"""
HISTORY_OF_OUTPUTS = HISTORY.replace("ORDER BY", "AND c.outputs ORDER BY")
NUMBERS = f"SELECT c.number FROM {COMMITS} WHERE r.run_id = $1 ORDER BY c.number"
LOGGED = """
SELECT convert_to(l.body, 'UTF8') FROM {schema}.runs AS r JOIN {schema}.superstep_log AS l ON l.run = r.key
WHERE r.run_id = $1 AND l.place = $2 AND l.key = $3
"""
PENDING_SIGNALS = """
SELECT s.key, convert_to(s.body, 'UTF8') FROM {schema}.runs AS r JOIN {schema}.signals AS s ON s.run = r.key
WHERE r.run_id = $1 AND NOT s.consumed ORDER BY s.seq
"""
ONE_RUN = f"SELECT {RUN} FROM {{schema}}.runs AS r WHERE r.run_id = $1 AND r.number >= 0"

# ---------------------------------------------------------------------- of all runs

# An id leads to its run by the hash in it ($2) and to the record by the number in it ($3). For ids
# that do not say their place there is an index.
LOCATE = f"""
SELECT {ENTRY} FROM {COMMITS} WHERE r.hash = $2 AND c.number = $3 AND c.checkpoint_id = $1
UNION SELECT {ENTRY} FROM {COMMITS} WHERE c.foreign_id AND c.checkpoint_id = $1
ORDER BY at DESC LIMIT 1
"""
LATEST_FIRST = "ORDER BY at DESC, run_id DESC, number DESC LIMIT {limit}"
# In most runs the times rise with the numbers. Then only the last so many records of a run can be on
# the page, and they are found by their numbers. Without a place to start from, only so many runs can
# have records on it, those that changed last.
CHECKPOINTS = f"""
SELECT {ENTRY} FROM
    (SELECT * FROM {{schema}}.runs AS r WHERE r.number >= 0 AND r.in_order AND {{of_run}}
     ORDER BY r.at DESC, r.run_id DESC LIMIT {{runs}}) AS r
    CROSS JOIN LATERAL (SELECT * FROM {{schema}}.commits AS c WHERE c.run = r.key AND {{of_commit}}
     ORDER BY c.number DESC LIMIT {{limit}}) AS c
UNION ALL SELECT {ENTRY} FROM {COMMITS} WHERE NOT r.in_order AND {{of_run}} AND {{of_commit}} {LATEST_FIRST}
"""
CHECKPOINTS_BY_PREFIX = f"""
SELECT {ENTRY} FROM {COMMITS}
WHERE r.hash >= {{first_hash}} AND r.hash < {{end_hash}} AND NOT c.foreign_id AND {{of_run}} AND {{of_commit}}
UNION ALL SELECT {ENTRY} FROM {COMMITS} WHERE c.foreign_id AND {{of_run}} AND {{of_commit}} {LATEST_FIRST}
"""
CHECKPOINTS_OF_RUN = f"""
SELECT {ENTRY} FROM {COMMITS} WHERE {{of_run}} AND {{of_commit}} ORDER BY c.number DESC LIMIT {{limit}}
"""

# Runs without and with a caller are two searches: each reads an index in order and stops at the limit.
RUNS = "SELECT * FROM ({pages}) AS page ORDER BY began DESC, run_id DESC LIMIT {limit}"
PAGE = f"""
(SELECT {RUN} FROM {{source}} WHERE {{conditions}} ORDER BY {{by}}.began DESC, {{by}}.run_id DESC LIMIT {{limit}})
"""
HAS_TEXT = """
(strpos(lower(r.run_id), {text}) > 0 OR strpos(lower(r.workflow), {text}) > 0 OR EXISTS (
    SELECT FROM jsonb_each_text(r.tags) AS o
    WHERE strpos(lower(o.key COLLATE "C"), {text}) > 0 OR strpos(lower(o.value COLLATE "C"), {text}) > 0))
"""
REQUESTS = f"SELECT {REQUEST} FROM {{schema}}.requests WHERE {{where}} ORDER BY {{order}}, run_id, seq LIMIT {{limit}}"
# If the last request of the page was closed meanwhile, what its run asked at the same moment comes
# again.
AFTER_REQUEST = """({order}, run_id, seq) > ({at}, {run}, coalesce((
    SELECT q.seq FROM {schema}.requests AS q WHERE q.run_id = {run} AND q.request_id = {request}), 0))
"""
WAKES = "SELECT run_id, workflow, wake FROM {schema}.runs WHERE {where} ORDER BY wake, run_id"

# ---------------------------------------------------------------------- maintenance

UNLISTED = """
SELECT c.run FROM {schema}.commits AS c LEFT JOIN {schema}.runs AS r ON r.key = c.run WHERE r.key IS NULL GROUP BY c.run
"""
MISLISTED = """
SELECT r.run_id, r.number, c.number FROM {schema}.runs AS r
LEFT JOIN (SELECT run, max(number) AS number FROM {schema}.commits GROUP BY run) AS c ON c.run = r.key
WHERE r.number <> coalesce(c.number, -1)
"""
SIZE = """
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class AS c
WHERE c.relnamespace = to_regnamespace($1) AND c.relkind = 'r'
"""


class Search:
    """A query with conditions, and the values that are bound to it."""

    def __init__(self) -> None:
        self.values: list[object] = []

    def bind(self, value: object) -> str:
        """Bind a value; return its placeholder (`$1`, `$2`, ...)."""
        self.values.append(value)
        return f"${len(self.values)}"

    def where(self, **conditions: object) -> str:
        """Return a condition for each column that must have a value."""
        return self.all_of(
            *(f"r.{name} = {self.bind(value)}" for name, value in conditions.items() if value is not None)
        )

    @staticmethod
    def all_of(*conditions: str) -> str:
        return " AND ".join(conditions) or "true"

    def limit(self, limit: int | None) -> str:
        return f"{self.bind(limit)}::bigint"

    def starts_with(self, column: str, prefix: str) -> str:
        # A range instead of LIKE: it needs no escaping and always uses the index.
        end = prefix_end(escape(prefix))
        first = f"{column} >= {self.bind(prefix)}"
        # Bytes are bound as they are: this text is escaped already.
        return first if end is None else f"{first} AND {column} < {self.bind(end.encode())}"


def runs_query(search: Search, run_filter: RunFilter, past: RunEntry | None, limit: int | None) -> str:
    """Return the query for a page of runs, as `Index.runs` promises."""
    by = "t" if run_filter.tags else "r"
    conditions = list(_run_conditions(search, run_filter, by))
    # By position, not by offset: runs that start or are removed between two pages shift nothing.
    if past is not None:
        conditions.append(f"({by}.began, {by}.run_id) < ({search.bind(past.began)}, {search.bind(past.run_id)})")
    pages = [
        PAGE.replace("{source}", _runs(search, run_filter))
        .replace("{conditions}", search.all_of(side, "r.began IS NOT NULL", *conditions))
        .replace("{by}", by)
        for side in ([f"NOT {by}.is_child"] + ([f"{by}.is_child"] if run_filter.children else []))
    ]
    return RUNS.replace("{pages}", " UNION ALL ".join(pages)).replace("{limit}", search.limit(limit))


def _runs(search: Search, run_filter: RunFilter) -> str:
    """Return what to search: runs, with their tags if there are some, or those with a prefix of the id.

    OFFSET 0 keeps the planner from merging the subquery with the other conditions and choosing a
    different index.
    """
    if run_filter.tags:
        return "{schema}.tags AS t JOIN {schema}.runs AS r ON r.key = t.run"
    if run_filter.prefix:
        return f"(SELECT * FROM {{schema}}.runs WHERE {search.starts_with('run_id', run_filter.prefix)} OFFSET 0) AS r"
    return "{schema}.runs AS r"


def _run_conditions(search: Search, run_filter: RunFilter, by: str) -> Iterator[str]:
    yield search.where(workflow=run_filter.workflow, status=run_filter.status)
    # The index of the first tag leads; the others are checked for each run.
    for name, value in list(run_filter.tags.items())[:1]:
        yield f"t.name = {search.bind(name)} AND t.value = {search.bind(value)}"
    for name, value in list(run_filter.tags.items())[1:]:
        yield f"r.tags->>{search.bind(name)} = {search.bind(value)}"
    if run_filter.prefix and by == "t":
        yield search.starts_with("t.run_id", run_filter.prefix)
    if run_filter.text is not None:
        yield HAS_TEXT.replace("{text}", f"{search.bind(fold_case(run_filter.text))}::text")
    for column, operator, value in (
        (f"{by}.began", ">=", run_filter.since),
        (f"{by}.began", "<", run_filter.until),
        ("r.at", ">=", run_filter.changed_since),
        ("r.at", "<", run_filter.changed_until),
    ):
        if value is not None:
            yield f"{column} {operator} {search.bind(value)}"


def checkpoints_query(search: Search, criteria: CheckpointFilter, before: Entry | None, limit: int | None) -> str:
    """Return the query for a page of checkpoints, latest first, as `Index.checkpoints` promises."""
    of_run = search.where(workflow=criteria.workflow, run_id=criteria.run_id)
    of_commit = [search.starts_with("c.checkpoint_id", criteria.prefix)] if criteria.prefix else []
    query = CHECKPOINTS
    if criteria.run_id is not None:
        query = CHECKPOINTS_OF_RUN
    elif criteria.prefix:
        first, end = run_hashes_for(criteria.prefix) or (0, 0)
        query = CHECKPOINTS_BY_PREFIX.replace("{first_hash}", f"{first}").replace("{end_hash}", f"{end}")
    if before is not None and criteria.run_id is not None:
        of_commit.append(f"c.number < {search.bind(before.number)}")
    elif before is not None:
        last = f"({search.bind(before.at)}, {search.bind(before.run_id)}, {search.bind(before.number)}::bigint)"
        of_commit.append(f"(c.at, r.run_id, c.number) < {last}")
    query = query.replace("{of_run}", of_run).replace("{of_commit}", search.all_of(*of_commit))
    at_most = search.limit(limit)
    return query.replace("{runs}", at_most if before is None else "NULL").replace("{limit}", at_most)


def requests_query(search: Search, criteria: RequestFilter, past: RequestEntry | None, limit: int | None) -> str:
    """Return the query for a page of open requests, as `Index.requests` promises."""
    order = "at" if criteria.due_until is None else "deadline"
    conditions = []
    for condition, value in (
        ("workflow = {}", criteria.workflow),
        ("run_id = {}", criteria.run_id),
        ("at <= {}", criteria.asked_until),
        ("deadline IS NOT NULL AND deadline <= {}", criteria.due_until),
    ):
        if value is not None:
            conditions.append(condition.format(search.bind(value)))
    if past is not None:
        at = past.at if criteria.due_until is None else past.deadline or ""
        after = AFTER_REQUEST.replace("{at}", search.bind(at)).replace("{run}", search.bind(past.run_id))
        conditions.append(after.replace("{request}", search.bind(past.request_id)))
    query = REQUESTS.replace("{where}", search.all_of(*conditions)).replace("{order}", order)
    return query.replace("{limit}", search.limit(limit))


def wakes_query(search: Search, before: str | None, workflow: str | None) -> str:
    """Return the query for the runs that want to be resumed."""
    conditions = ["wake IS NOT NULL"]
    if before is not None:
        conditions.append(f"wake <= {search.bind(before)}")
    if workflow is not None:
        conditions.append(f"workflow = {search.bind(workflow)}")
    return WAKES.replace("{where}", search.all_of(*conditions))
