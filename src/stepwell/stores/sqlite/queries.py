"""The SQL statements of the SQLite store."""

from __future__ import annotations

# ---------------------------------------------------------------------- records

ENTRY = "run_id, number, checkpoint_id, workflow, status, iteration, at, frame, outputs, fleeting"
RECORD = f"{ENTRY}, CAST(body AS BLOB)"

# Also asks whether there is a superstep log and a wake-up time: a look costs less than a DELETE
# that finds nothing.
STANDING = """
SELECT number, workflow, (SELECT fence FROM leases WHERE leases.run_id = runs.run_id), swept,
    EXISTS (SELECT 1 FROM memory WHERE memory.run_id = runs.run_id),
    EXISTS (SELECT 1 FROM wakes WHERE wakes.run_id = runs.run_id)
FROM runs WHERE run_id = ?
"""
ADD = f"INSERT INTO commits ({ENTRY}, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
# Deletes the old row, so that the new one gets the highest `seq`: it counts as committed now.
PUT = ADD.replace("INSERT", "INSERT OR REPLACE")
# Updates in place and keeps `seq`: a record that takes another's place does not become the newest.
REPLACE = f"""
{ADD} ON CONFLICT (run_id, number) DO UPDATE SET
    checkpoint_id = excluded.checkpoint_id, workflow = excluded.workflow, status = excluded.status,
    iteration = excluded.iteration, at = excluded.at, frame = excluded.frame, outputs = excluded.outputs,
    fleeting = excluded.fleeting, body = excluded.body
"""
IS_FRAME = "SELECT frame FROM commits WHERE run_id = ? AND number = ?"
FRAMES = "SELECT number, frame FROM commits WHERE run_id = ? AND number BETWEEN ? AND ?"
REMOVE = "DELETE FROM commits WHERE run_id = ? AND number = ?"
REDUCE = "UPDATE commits SET frame = ?, body = ? WHERE run_id = ? AND number = ? AND checkpoint_id = ?"
SWEEP = "DELETE FROM commits WHERE run_id = ? AND number >= ? AND number < ? AND NOT outputs"
SWEPT = "UPDATE runs SET swept = ? WHERE run_id = ?"
HEAD = f"SELECT {RECORD} FROM commits WHERE run_id = ? ORDER BY number DESC LIMIT 1"
CHAIN = f"""
SELECT {RECORD} FROM commits
WHERE run_id = :run_id AND number <= :number AND number >= coalesce(
    (SELECT max(number) FROM commits WHERE run_id = :run_id AND number <= :number AND frame), :number)
ORDER BY number
"""
PART = f"SELECT {RECORD} FROM commits WHERE run_id = ? AND number > ? AND number <= ?"
HISTORY = f"{PART} ORDER BY number"
HISTORY_OF_OUTPUTS = f"{PART} AND outputs ORDER BY number"
LOCATE = f"SELECT {ENTRY} FROM commits WHERE checkpoint_id = ? ORDER BY seq DESC LIMIT 1"
CHECKPOINTS = f"SELECT {ENTRY} FROM commits {{where}} ORDER BY checkpoint_id, seq LIMIT ?"
ENTRIES = f"SELECT {ENTRY} FROM commits {{where}} ORDER BY seq DESC LIMIT ?"
ENTRIES_OF_RUN = ENTRIES.replace("ORDER BY seq", "ORDER BY number")  # the same order, unless the run is `mixed`
MIXED = "SELECT mixed FROM runs WHERE run_id = ?"
MIX = "UPDATE runs SET mixed = 1 WHERE run_id = ?"
BEFORE = "seq < (SELECT max(seq) FROM commits WHERE checkpoint_id = ?)"

# ---------------------------------------------------------------------- superstep log

# Checks the fence and inserts in one statement. Without a fence, `fence > NULL` is never true.
REMEMBER = """
INSERT INTO memory (run_id, place, key, body)
SELECT :run_id, :place, :key, :body WHERE NOT EXISTS (SELECT 1 FROM leases WHERE run_id = :run_id AND fence > :fence)
ON CONFLICT DO NOTHING
"""
RECALL = "SELECT key, CAST(body AS BLOB) FROM memory WHERE run_id = ? AND place = ?"
DROP_LOG_THROUGH = "DELETE FROM memory WHERE run_id = ? AND place <= ?"
FORGET_AFTER = "DELETE FROM memory WHERE run_id = ? AND place > ?"

# ---------------------------------------------------------------------- signals

POST = "INSERT INTO mail (run_id, key, consumed, body) VALUES (?, ?, 0, ?) ON CONFLICT DO NOTHING"
# json_each truncates a string at a NUL, so ids arrive escaped (`_escape_nul`) and are unescaped here.
MAILED = """
SELECT key FROM json_each(?) WHERE EXISTS (
    SELECT 1 FROM mail WHERE run_id = replace(replace(value, '~0', char(0)), '~1', '~') AND NOT consumed)
"""
MAIL = "SELECT key, CAST(body AS BLOB) FROM mail WHERE run_id = ? AND NOT consumed ORDER BY seq"
# A consumed signal stays as a tombstone, so that its key cannot be used again. The body is not
# needed any more.
CONSUME = """
INSERT INTO mail (run_id, key, consumed, body) VALUES (?, ?, 1, 'null')
ON CONFLICT (run_id, key) DO UPDATE SET consumed = 1, body = excluded.body
"""

# ---------------------------------------------------------------------- requests and wake-up times

REQUEST = "run_id, request_id, workflow, executor, request_type, response_type, schema, at, deadline"
ASK = f"INSERT OR REPLACE INTO requests ({REQUEST}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
CLOSE = "DELETE FROM requests WHERE run_id = ? AND request_id = ?"
CLOSE_ALL = "DELETE FROM requests WHERE run_id = ?"
PENDING = f"SELECT {REQUEST} FROM requests WHERE {{where}} ORDER BY {{order}}, run_id, seq LIMIT ?"
# If the last request of the page was closed meanwhile, what its run asked at the same moment comes
# again.
PAST = "({order}, run_id, seq) > (?, ?, coalesce((SELECT seq FROM requests WHERE run_id = ? AND request_id = ?), 0))"

WAKE = "INSERT OR REPLACE INTO wakes (run_id, workflow, at) VALUES (?, ?, ?)"
CLEAR_WAKE = "DELETE FROM wakes WHERE run_id = ?"
WAKES = "SELECT run_id, workflow, at FROM wakes {where} ORDER BY at, run_id"

# ---------------------------------------------------------------------- removal of a run

DROP_RUN = "DELETE FROM runs WHERE run_id = ?"
DROP_RECORDS = [f"DELETE FROM {table} WHERE run_id = ?" for table in ("commits", "leases")]
DROP_BESIDE = [f"DELETE FROM {table} WHERE run_id = ?" for table in ("memory", "mail", "requests", "wakes")]

# ---------------------------------------------------------------------- leases

LEASE = "SELECT host, machine, pid, started, drive, until, fence FROM leases WHERE run_id = ?"
CLAIM = """
INSERT OR REPLACE INTO leases (run_id, host, machine, pid, started, drive, until, fence) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
FENCE = "SELECT fence FROM leases WHERE run_id = ?"
# A released lease keeps its row with `until = 0`: the next fence must be higher, and renewing must
# not revive it.
RENEW = "UPDATE leases SET until = ? WHERE run_id = ? AND fence = ? AND until > 0"
RELEASE = """
UPDATE leases SET until = 0
WHERE run_id = ? AND host = ? AND machine = ? AND pid = ? AND started = ? AND drive = ?
"""
# Without records there is nothing left to protect with a fence, so the row may go.
FORGET_CLAIM = """
DELETE FROM leases WHERE run_id = :run_id AND until = 0 AND NOT EXISTS (SELECT 1 FROM runs WHERE run_id = :run_id)
"""

# ---------------------------------------------------------------------- the list of runs

RUN = """
runs.run_id, runs.workflow, runs.status, runs.number, runs.checkpoint_id, runs.iteration, runs.at, runs.began,
runs.caller, runs.tags
"""
RUN_OF = f"SELECT {RUN} FROM runs WHERE run_id = ?"
RUNS = f"SELECT {RUN} FROM runs WHERE {{where}} ORDER BY runs.began DESC, runs.run_id DESC LIMIT ?"
# CROSS JOIN keeps SQLite from reordering the tables: the index of the tags is in the order of the
# result.
RUNS_BY_TAG = f"""
SELECT {RUN} FROM tags CROSS JOIN runs ON runs.run_id = tags.run_id
WHERE tags.name = ? AND tags.value = ? AND {{where}} ORDER BY tags.began DESC, tags.run_id DESC LIMIT ?
"""
HAS_TAG = """
EXISTS (SELECT 1 FROM tags AS also WHERE also.name = ? AND also.value = ? AND also.called = tags.called
    AND also.began = tags.began AND also.run_id = tags.run_id)
"""
HAS_TEXT = """
(instr(lower(runs.run_id), ?) OR instr(lower(runs.workflow), ?) OR EXISTS (SELECT 1 FROM tags AS tag
    WHERE tag.run_id = runs.run_id AND (instr(lower(tag.name), ?) OR instr(lower(tag.value), ?))))
"""
SET_ABOUT = "UPDATE runs SET caller = ?, called = ?, tags = ? WHERE run_id = ?"
UNTAG = "DELETE FROM tags WHERE run_id = ?"
TAG = """
INSERT INTO tags (name, value, called, began, run_id) SELECT ?, ?, called, began, run_id FROM runs WHERE run_id = ?
"""

NO_LIMIT = 2**63 - 1  # the largest integer of SQLite
