"""The queries of the PostgreSQL store.

`{schema}` stands for the quoted schema. The values of a search are always bound as parameters.
"""

from __future__ import annotations

from stepwell.storage.filters import (
    STOPPED,
    CheckpointFilter,
    ReadyFilter,
    RequestFilter,
    RunFilter,
    fold_case,
    prefix_end,
)
from stepwell.storage.ids import run_hashes_for
from stepwell.storage.lease import this_process
from stepwell.storage.stored_values import Entry, RequestEntry, RunEntry
from stepwell.stores.postgres.values import clock_ahead, escape

ENTRY = """
r.run_id, c.number, c.checkpoint_id, r.workflow, c.status, c.iteration, c.at, c.is_snapshot, c.outputs, c.latest_only,
c.decisions
""".strip()
# The seconds that are left of a lease, by the clock of the database.
RUN = """
r.run_id, r.workflow, r.status, r.number, r.checkpoint_id, r.iteration, r.at, r.began, r.wake,
EXISTS (SELECT FROM {schema}.signals AS s WHERE s.run = r.key AND NOT s.consumed), r.tags, r.caller, r.priority,
r.parent_run, r.parent_id, r.parent_number, r.owner, extract(epoch FROM r.until - clock_timestamp())::float8
"""
REQUEST = "run_id, request_id, workflow, executor, request_type, response_type, schema, at, deadline, body"
COMMITS = "{schema}.runs AS r JOIN {schema}.commits AS c ON c.run = r.key"

# ---------------------------------------------------------------------- of one run

# The key of the run as a value, so that the index gives the order.
KEY = "(SELECT r.key FROM {schema}.runs AS r WHERE r.run_id = $1)"
READ = "SELECT * FROM {schema}.read($1, $2, $3)"
HISTORY = f"""
SELECT {ENTRY}, convert_to(c.body, 'UTF8') FROM {COMMITS}
WHERE c.run = {KEY} AND c.number > $2 AND c.number <= $3 ORDER BY c.number
"""
HISTORY_OF_OUTPUTS = HISTORY.replace("ORDER BY", "AND c.outputs ORDER BY")
NUMBERS = f"SELECT c.number FROM {{schema}}.commits AS c WHERE c.run = {KEY} ORDER BY c.number"
LOGGED = f"""
SELECT convert_to(l.body, 'UTF8') FROM {{schema}}.superstep_log AS l WHERE l.run = {KEY} AND l.place = $2 AND l.key = $3
"""
PENDING_SIGNALS = f"""
SELECT s.key, convert_to(s.body, 'UTF8') FROM {{schema}}.signals AS s
WHERE s.run = {KEY} AND NOT s.consumed ORDER BY s.seq
"""
ONE_RUN = f"SELECT {RUN} FROM {{schema}}.runs AS r WHERE r.run_id = $1 AND r.number >= 0"

# ---------------------------------------------------------------------- of all runs

# An id leads to its run by the hash in it ($2) and to the record by the number in it ($3). For ids
# that do not say their place there is an index.
LOCATE = f"""
SELECT {ENTRY}, c.foreign_id FROM {COMMITS} WHERE r.hash = $2 AND c.number = $3 AND c.checkpoint_id = $1
UNION SELECT {ENTRY}, c.foreign_id FROM {COMMITS} WHERE c.foreign_id AND c.checkpoint_id = $1
ORDER BY foreign_id, at DESC LIMIT 1
"""
LATEST_FIRST = "ORDER BY at DESC, run_id DESC, number DESC LIMIT {limit}"
# Says the obvious, so that the indexes for the list of runs are used.
LISTED = "r.began IS NOT NULL AND r.is_child IN (false, true)"
# In most runs the times rise with the numbers. Then only the last so many records of a run can be on
# the page, and they are found by their numbers. Without a place to start from, only so many runs can
# have records on it, those that changed last.
CHECKPOINTS = f"""
SELECT {ENTRY} FROM
    (SELECT * FROM {{schema}}.runs AS r WHERE {LISTED} AND r.in_order AND {{of_run}}
     ORDER BY r.at DESC, r.run_id DESC LIMIT {{runs}}) AS r
    CROSS JOIN LATERAL (SELECT * FROM {{schema}}.commits AS c WHERE c.run = r.key AND {{of_commit}}
     ORDER BY c.number DESC LIMIT {{limit}}) AS c
UNION ALL SELECT {ENTRY} FROM {COMMITS} WHERE {LISTED} AND NOT r.in_order AND {{of_run}} AND {{of_commit}}
{LATEST_FIRST}
"""
CHECKPOINTS_BY_PREFIX = f"""
SELECT {ENTRY} FROM {COMMITS}
WHERE r.hash >= {{first_hash}} AND r.hash < {{end_hash}} AND NOT c.foreign_id AND {{of_run}} AND {{of_commit}}
UNION ALL SELECT {ENTRY} FROM {COMMITS} WHERE c.foreign_id AND {{of_run}} AND {{of_commit}} {LATEST_FIRST}
"""
DECISIONS = f"""
SELECT {ENTRY} FROM {COMMITS} WHERE c.decisions AND {{of_run}} AND {{of_commit}}
ORDER BY c.at DESC, r.run_id DESC, c.number DESC LIMIT {{limit}}
"""
CHECKPOINTS_OF_RUN = f"""
SELECT {ENTRY} FROM {COMMITS} WHERE c.run = (SELECT r.key FROM {{schema}}.runs AS r WHERE {{of_run}}) AND {{of_commit}}
ORDER BY c.number DESC LIMIT {{limit}}
"""

# Runs without and with a caller are two searches: each reads an index in order and stops at the limit.
RUNS = "SELECT * FROM ({pages}) AS page ORDER BY began DESC, run_id DESC LIMIT {limit}"
PAGE = f"""
(SELECT {RUN} FROM {{source}} WHERE {{side}} AND {{where}}
 ORDER BY {{by}}.began DESC, {{by}}.run_id DESC LIMIT {{limit}})
"""
HAS_TEXT = """
(strpos(lower(r.run_id), {text}) > 0 OR strpos(lower(r.workflow), {text}) > 0 OR EXISTS (
    SELECT FROM jsonb_each_text(r.tags) AS o
    WHERE strpos(lower(o.key COLLATE "C"), {text}) > 0 OR strpos(lower(o.value COLLATE "C"), {text}) > 0))
"""
DUE = """key IN (
    SELECT s.run FROM {schema}.signals AS s WHERE NOT s.consumed
    UNION SELECT w.key FROM {schema}.runs AS w WHERE w.wake <= {due_by})
"""
REQUESTS = f"""
SELECT {REQUEST} FROM {{schema}}.requests AS r WHERE {{where}} ORDER BY r.{{order}}, r.run_id, r.seq LIMIT {{limit}}
"""
# If the last request of the page was closed meanwhile, what its run asked at the same moment comes
# again.
AFTER_REQUEST = """(r.{{order}}, r.run_id, r.seq) > ({0}, {1}, coalesce((
    SELECT q.seq FROM {{schema}}.requests AS q WHERE q.run_id = {1} AND q.request_id = {2}), 0))
"""
# Nobody answers a run that has stopped, unless it is driven again.
OF_ACTIVE_RUNS = f"""
EXISTS (SELECT FROM {{schema}}.runs AS a WHERE a.run_id = r.run_id
    AND (a.owner IS NOT NULL OR coalesce(a.status, '') NOT IN ({", ".join(map(repr, STOPPED))})))
"""
FREE = "(r.until IS NULL OR r.until < clock_timestamp() + make_interval(secs => {}::float8){})"
# Each part reads an index in order, and the first one does so for each priority that occurs. Owners on
# our machine are left to the caller, who can see whether their processes are alive.
READY = f"""
WITH RECURSIVE level (priority) AS (
    SELECT max(r.priority) FROM {{schema}}.runs AS r WHERE r.wake IS NOT NULL
    UNION ALL
    SELECT (SELECT max(r.priority) FROM {{schema}}.runs AS r WHERE r.wake IS NOT NULL AND r.priority < l.priority)
    FROM level AS l WHERE l.priority IS NOT NULL)
(SELECT due.* FROM level AS l CROSS JOIN LATERAL (
    SELECT {RUN}, -r.priority AS place, r.wake AS since FROM {{schema}}.runs AS r
    WHERE r.priority = l.priority AND r.wake <= {{by}} AND {{where}} AND (-r.priority, r.wake, r.run_id) > {{past}}
    ORDER BY r.wake, r.run_id LIMIT {{limit}}) AS due)
UNION ALL
(SELECT {RUN}, -r.priority AS place, r.at AS since FROM {{schema}}.runs AS r
 WHERE r.key IN (SELECT s.run FROM {{schema}}.signals AS s WHERE NOT s.consumed)
    AND r.status IN (SELECT jsonb_array_elements_text({{resting}}::jsonb))
    AND (r.wake IS NULL OR r.wake > {{by}}) AND {{where}} AND (-r.priority, r.at, r.run_id) > {{past}}
 ORDER BY r.priority DESC, r.at, r.run_id LIMIT {{limit}})
ORDER BY place, since, run_id LIMIT {{limit}}
"""

COUNT_RUNS = """
SELECT r.status, count(*) FROM {schema}.runs AS r WHERE r.began IS NOT NULL AND NOT r.is_child GROUP BY r.status
"""
PLACE = """
SELECT r.began, r.run_id FROM {schema}.runs AS r WHERE r.began IS NOT NULL AND NOT r.is_child
    AND ($1::text IS NULL OR (r.began, r.run_id) < ($1::text, $2::text))
ORDER BY r.began DESC, r.run_id DESC LIMIT 2 OFFSET $3::bigint
"""
COUNT_REQUESTS = f"SELECT count(*) FROM {{schema}}.requests AS r WHERE {OF_ACTIVE_RUNS}"
WORKERS = """
SELECT w.name, w.process, extract(epoch FROM clock_timestamp() - w.seen)::float8 + $1::float8,
    convert_to(w.body, 'UTF8')
FROM {schema}.workers AS w ORDER BY w.name
"""
WEBHOOKS = """
SELECT w.id, w.workflow, w.kinds, w.stopped, convert_to(w.body, 'UTF8') FROM {schema}.webhooks AS w ORDER BY w.id
"""
_MESSAGE = """
SELECT m.webhook, m.run_id, m.position, m.number, m.kind, m.workflow, m.at, m.request, m.attempts, m.due, m.error
FROM {schema}.outbox AS m
"""
MESSAGES = f"{_MESSAGE} WHERE m.webhook = $1 ORDER BY m.position LIMIT $2"
DUE_MESSAGES = f"""
{_MESSAGE} WHERE m.webhook = $1 AND m.due <= $2 AND NOT EXISTS (
    SELECT FROM {{schema}}.outbox AS e WHERE e.run_id = m.run_id AND e.webhook = m.webhook
        AND e.position < m.position AND e.due IS NOT NULL)
ORDER BY m.due, m.position LIMIT $3
"""

# ---------------------------------------------------------------------- maintenance

# Runs that are listed with another number than that of their newest commit, and commits whose run
# is not listed.
MISLISTED = """
SELECT r.run_id, r.number, c.run, c.number FROM {schema}.runs AS r
FULL JOIN (SELECT run, max(number) AS number FROM {schema}.commits GROUP BY run) AS c ON c.run = r.key
WHERE coalesce(r.number, -1) <> coalesce(c.number, -1)
"""
SIZE = """
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class AS c
WHERE c.relnamespace = to_regnamespace($1) AND c.relkind = 'r'
"""


class Search:
    """A query that is built from conditions, and the values that are bound to it."""

    def __init__(self) -> None:
        self.values: list[object] = []

    def bind(self, value: object) -> str:
        """Bind a value; return its placeholder (`$1`, `$2`, ...)."""
        self.values.append(value)
        return f"${len(self.values)}"

    def limit(self, limit: int | None) -> str:
        return f"{self.bind(limit)}::bigint"

    def all_of(self, *conditions: str, **values: object) -> str:
        """Return the conditions, and those of `CONDITIONS` with a value, as one."""
        bound = [
            CONDITIONS[name].replace("{}", self.bind(value)) for name, value in values.items() if value is not None
        ]
        return " AND ".join((*conditions, *bound)) or "true"

    def starts_with(self, column: str, prefix: str) -> str:
        # A range instead of LIKE: it needs no escaping and always uses the index.
        end = prefix_end(escape(prefix))
        first = f"{column} >= {self.bind(prefix)}"
        # Bytes are bound as they are: this text is escaped already.
        return first if end is None else f"{first} AND {column} < {self.bind(end.encode())}"


CONDITIONS = {
    "workflow": "r.workflow = {}",
    "status": "r.status = {}",
    "parent": "r.parent_run = {}",
    "run_id": "r.run_id = {}",
    "since": "{by}.began >= {}",
    "until": "{by}.began < {}",
    "changed_since": "r.at >= {}",
    "changed_until": "r.at < {}",
    "asleep_at": "r.wake > {}",
    "request_id": "r.request_id = {}",
    "asked_until": "r.at <= {}",
    "due_until": "r.deadline IS NOT NULL AND r.deadline <= {}",
}


def runs_query(search: Search, criteria: RunFilter, past: RunEntry | None, limit: int | None) -> str:
    """Return the query for a page of runs, as `Index.runs` promises."""
    by, source, few = "r", "{schema}.runs AS r", []
    conditions = ["r.began IS NOT NULL"]
    if criteria.tags:
        by, source = "t", "{schema}.tags AS t JOIN {schema}.runs AS r ON r.key = t.run"
    if criteria.ids is not None:
        ids = search.bind([escape(id) for id in criteria.ids])
        conditions.append(f"r.run_id IN (SELECT jsonb_array_elements_text({ids}::jsonb))")
    if criteria.prefix:
        few.append(search.starts_with("run_id", criteria.prefix))
    if criteria.due_by is not None:
        few.append(DUE.replace("{due_by}", search.bind(criteria.due_by)))
    if few:
        # These are found first, and then sorted. OFFSET 0 keeps the planner from merging the subquery with
        # the other conditions and choosing a different index.
        found = f"(SELECT * FROM {{schema}}.runs WHERE {' AND '.join(few)} OFFSET 0)"
        source = source.replace("{schema}.runs", found)
    if criteria.owned:
        conditions.append("r.owner IS NOT NULL")
    # The index of the first tag leads; the others are checked for each run.
    for n, (name, value) in enumerate(criteria.tags.items()):
        tag = "t.name = {} AND t.value = {}" if n == 0 else "r.tags->>{} = {}"
        conditions.append(tag.format(search.bind(name), search.bind(value)))
    if criteria.text is not None:
        conditions.append(HAS_TEXT.replace("{text}", f"{search.bind(fold_case(criteria.text))}::text"))
    # By position, not by offset: runs that start or are removed between two pages shift nothing.
    if past is not None:
        conditions.append(f"({{by}}.began, {{by}}.run_id) < ({search.bind(past.began)}, {search.bind(past.run_id)})")
    where = search.all_of(
        *conditions,
        workflow=criteria.workflow,
        status=criteria.status,
        parent=criteria.parent,
        since=criteria.since,
        until=criteria.until,
        changed_since=criteria.changed_since,
        changed_until=criteria.changed_until,
        asleep_at=criteria.asleep_at,
    )
    page = PAGE.replace("{source}", source).replace("{where}", where)
    sides = ["NOT {by}.is_child", "{by}.is_child"] if criteria.children else ["NOT {by}.is_child"]
    pages = " UNION ALL ".join(page.replace("{side}", side) for side in sides)
    return RUNS.replace("{pages}", pages).replace("{by}", by).replace("{limit}", search.limit(limit))


def ready_query(search: Search, criteria: ReadyFilter, past: tuple[int, str, str], limit: int | None) -> str:
    """Return the query for the runs that may be ready, as `Index.ready` promises, after a place in their order."""
    ahead = search.bind(clock_ahead())
    ours = f" OR r.owner->>'machine' = {search.bind(this_process('').machine)}" if criteria.orphans else ""
    is_free = FREE.format(ahead, ours)
    where = search.all_of(is_free, "NOT r.is_child", workflow=criteria.workflow)
    values = {
        "where": where,
        "by": search.bind(criteria.by),
        "past": f"({search.bind(past[0])}::integer, {search.bind(past[1])}, {search.bind(past[2])})",
        "resting": search.bind(criteria.resting),
        "limit": search.limit(limit),
    }
    query = READY
    for name, value in values.items():
        query = query.replace(f"{{{name}}}", value)
    return query


def checkpoints_query(search: Search, criteria: CheckpointFilter, before: Entry | None, limit: int | None) -> str:
    """Return the query for a page of checkpoints, latest first, as `Index.checkpoints` promises."""
    query, of_commit = CHECKPOINTS, []
    if criteria.prefix:
        first, end = run_hashes_for(criteria.prefix) or (0, 0)
        query = CHECKPOINTS_BY_PREFIX.replace("{first_hash}", f"{first}").replace("{end_hash}", f"{end}")
        of_commit.append(search.starts_with("c.checkpoint_id", criteria.prefix))
    if criteria.decisions:
        query = DECISIONS
        of_commit.append("c.decisions")
    if criteria.run_id is not None:
        query = CHECKPOINTS_OF_RUN
    if before is not None and criteria.run_id is not None:
        of_commit.append(f"c.number < {search.bind(before.number)}::bigint")
    elif before is not None:
        place = (search.bind(before.at), search.bind(before.run_id), f"{search.bind(before.number)}::bigint")
        of_commit.append(f"c.at <= {place[0]} AND (c.at, r.run_id, c.number) < ({', '.join(place)})")
    of_run = search.all_of(workflow=criteria.workflow, run_id=criteria.run_id)
    query = query.replace("{of_run}", of_run).replace("{of_commit}", search.all_of(*of_commit))
    most = search.limit(limit)
    return query.replace("{runs}", most if before is None else "NULL").replace("{limit}", most)


def requests_query(search: Search, criteria: RequestFilter, past: RequestEntry | None, limit: int | None) -> str:
    """Return the query for a page of open requests, as `Index.requests` promises."""
    order, conditions = "at" if criteria.due_until is None else "deadline", []
    if past is not None:
        at = past.at if criteria.due_until is None else past.deadline or ""
        conditions.append(AFTER_REQUEST.format(search.bind(at), search.bind(past.run_id), search.bind(past.request_id)))
    if not criteria.stopped:
        conditions.append(OF_ACTIVE_RUNS)
    where = search.all_of(
        *conditions,
        workflow=criteria.workflow,
        run_id=criteria.run_id,
        request_id=criteria.request_id,
        asked_until=criteria.asked_until,
        due_until=criteria.due_until,
    )
    return REQUESTS.replace("{where}", where).replace("{order}", order).replace("{limit}", search.limit(limit))
