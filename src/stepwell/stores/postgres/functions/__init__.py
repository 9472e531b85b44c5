"""The writes, and the reading of a whole run, as functions in the database.

A write is one call of one function: one statement, whatever it has to check and to change. Calls
that wait at the same moment are sent together and are one transaction (`pipeline`). No client can
die in the middle of one while it holds a lock. The database caches the plans of its functions,
even behind a pooler that hands out another session each time.

The first argument is the format that the caller writes: a program that was already running when a
newer one upgraded the schema is refused and writes nothing. The second one, `again`, is true if
the call may have been made already, in a transaction whose answer was lost. If it is refused, and
exactly what it wanted to store is there, then that transaction did it, and the answer is success.

A call that a store must refuse (see `CommitConflict`) changes nothing and answers with the reason,
as JSON; an error would undo the other calls of its transaction.

`{schema}` and `{format}` are replaced, not passed: the text of a function cannot have parameters. The
functions of one format must stay compatible with all programs of that format, which call them by
position.

    dropping.sql         the end of the functions of an older format
    reading.sql          the records of a run; with its superstep log and signals, if asked for
    append.sql           the next record of a run, and its effects
    log_and_signals.sql  entries of the superstep log, results of steps, signals
    leases.sql           acquiring, renewing and releasing a run
    maintenance.sql      rewriting and dropping a run
    workers.sql          the registry of workers
    outbox.sql           webhooks and their messages
"""

from __future__ import annotations

from importlib.resources import files

# A commit that we report must survive a crash, whatever the server is set to.
_CHECK = """    IF format <> {format} THEN
        RAISE EXCEPTION 'a newer Stepwell has upgraded the schema to format {format}; upgrade this program, too';
    END IF;
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
"""
# A cached plan must not rely on tables that are small now.
_PLANS = "LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan"
# In this order: `acquire` returns the type that `reading` creates.
_FILES = ("dropping", "reading", "append", "log_and_signals", "leases", "maintenance", "workers", "outbox")

FUNCTIONS = (
    "\n".join((files(__name__) / f"{name}.sql").read_text("utf-8") for name in _FILES)
    .replace("{check}", _CHECK.strip())
    .replace("{plans}", _PLANS)
)
