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
"""

# `{schema}` and `{format}` are replaced, not passed: the text of a function cannot have parameters.
# The functions of one format must stay compatible with all programs of that format, which call them
# by position.

# A commit that we report must survive a crash, whatever the server is set to.
_CHECK = """
    IF format <> {format} THEN
        RAISE EXCEPTION 'a newer Stepwell has upgraded the schema to format {format}; upgrade this program, too';
    END IF;
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
"""
# A cached plan must not rely on tables that are small now.
_PLANS = "LANGUAGE plpgsql SET enable_seqscan = off SET plan_cache_mode = force_generic_plan"

_APPEND = """
-- Returns NULL if the record was stored; otherwise where the run is.
CREATE FUNCTION {schema}.append(
    format integer, again boolean, of_run text, of_hash bigint, new_number bigint, new_id text, is_foreign boolean,
    of_workflow text, new_status text, new_iteration bigint, new_at text, new_snapshot boolean, new_outputs boolean,
    new_latest_only boolean, new_body text, log_through bigint, new_wake text, lease bigint, ends_lease boolean,
    effects jsonb
) RETURNS text {plans} AS $stepwell$
DECLARE
    of_key bigint;
BEGIN
    {check}
    -- The check and the lock in one: only a run that is where the writer saw it is updated.
    IF new_number = 0 THEN  -- the run may have a row already, because it is leased
        INSERT INTO {schema}.runs AS r
            (run_id, hash, workflow, began, fence, wake, status, number, iteration, checkpoint_id, at)
        VALUES (of_run, of_hash, of_workflow, new_at, coalesce(lease, 0), new_wake, new_status, 0, new_iteration,
            new_id,
            new_at)
        ON CONFLICT (run_id) DO UPDATE SET
            workflow = of_workflow, began = new_at, wake = new_wake, status = new_status, number = 0,
            iteration = new_iteration, checkpoint_id = new_id, at = new_at,
            owner = CASE WHEN ends_lease AND r.fence = lease THEN NULL ELSE r.owner END,
            until = CASE WHEN ends_lease AND r.fence = lease THEN NULL ELSE r.until END
        WHERE r.number = -1 AND (lease IS NULL OR r.fence <= lease)
        RETURNING key INTO of_key;
    ELSE
        UPDATE {schema}.runs AS r SET
            wake = new_wake, status = new_status, number = new_number, iteration = new_iteration,
            checkpoint_id = new_id, at = new_at, in_order = r.in_order AND r.at <= new_at,
            owner = CASE WHEN ends_lease AND r.fence = lease THEN NULL ELSE r.owner END,
            until = CASE WHEN ends_lease AND r.fence = lease THEN NULL ELSE r.until END
        WHERE r.run_id = of_run AND r.number = new_number - 1 AND r.workflow = of_workflow
            AND (lease IS NULL OR r.fence <= lease)
        RETURNING key INTO of_key;
    END IF;
    IF of_key IS NULL THEN
        PERFORM FROM {schema}.runs AS r JOIN {schema}.commits AS c ON c.run = r.key AND c.number = new_number
        WHERE again AND r.run_id = of_run AND c.checkpoint_id = new_id AND c.at = new_at AND c.body = new_body;
        RETURN CASE WHEN NOT FOUND THEN {schema}.position(of_run) END;
    END IF;
    INSERT INTO {schema}.commits
        (run, number, iteration, is_snapshot, outputs, latest_only, foreign_id, checkpoint_id, status, at, body)
    VALUES (of_key, new_number, new_iteration, new_snapshot, new_outputs, new_latest_only, is_foreign, new_id,
        new_status,
        new_at, new_body);
    IF log_through IS NOT NULL THEN
        DELETE FROM {schema}.superstep_log WHERE run = of_key AND place <= log_through;
    END IF;
    IF effects IS NOT NULL THEN
        DELETE FROM {schema}.requests
        WHERE run_id = of_run AND request_id IN (SELECT jsonb_array_elements_text(effects->'closed'));
        PERFORM {schema}.open_requests(of_run, effects);
        PERFORM {schema}.apply(of_key, effects);
    END IF;
    RETURN NULL;
END $stepwell$;

-- Returns where a run is, which says why a write was refused.
CREATE FUNCTION {schema}.position(of_run text) RETURNS text LANGUAGE plpgsql AS $stepwell$
DECLARE
    run {schema}.runs;
BEGIN
    SELECT * INTO run FROM {schema}.runs WHERE run_id = of_run;
    RETURN jsonb_build_object(
        'number', coalesce(run.number, -1), 'workflow', run.workflow, 'fence', coalesce(run.fence, 0));
END $stepwell$;

-- A request that is asked again becomes the last one asked.
CREATE FUNCTION {schema}.open_requests(of_run text, effects jsonb) RETURNS void LANGUAGE plpgsql AS $stepwell$
BEGIN
    DELETE FROM {schema}.requests
    WHERE run_id = of_run AND request_id IN (SELECT a->>'request_id' FROM jsonb_array_elements(effects->'asked') AS a);
    INSERT INTO {schema}.requests
        (run_id, request_id, workflow, executor, request_type, response_type, schema, at, deadline)
    SELECT q.run_id, q.request_id, q.workflow, q.executor, q.request_type, q.response_type, q.schema, q.at, q.deadline
    FROM jsonb_populate_recordset(NULL::{schema}.requests, effects->'asked') AS q;
END $stepwell$;

-- The effects that a record has wherever it is in its run.
CREATE FUNCTION {schema}.apply(of_key bigint, effects jsonb) RETURNS void LANGUAGE plpgsql AS $stepwell$
BEGIN
    INSERT INTO {schema}.signals (run, key, consumed, body)
    SELECT of_key, jsonb_array_elements_text(effects->'consumed'), true, 'null'
    ON CONFLICT (run, key) DO UPDATE SET consumed = true, body = excluded.body;
    IF effects ? 'metadata' THEN
        UPDATE {schema}.runs SET
            caller = effects->'metadata'->>'caller', is_child = effects->'metadata'->>'caller' IS NOT NULL,
            tags = effects->'metadata'->'tags'
        WHERE key = of_key
            AND (caller IS DISTINCT FROM effects->'metadata'->>'caller' OR tags <> effects->'metadata'->'tags');
        IF FOUND THEN
            DELETE FROM {schema}.tags WHERE run = of_key;
            INSERT INTO {schema}.tags (run, name, value, is_child, began, run_id)
            SELECT r.key, t.key, t.value, r.is_child, r.began, r.run_id
            FROM {schema}.runs AS r, jsonb_each_text(r.tags) AS t WHERE r.key = of_key;
        END IF;
    END IF;
    UPDATE {schema}.commits AS c SET
        iteration = n.iteration, is_snapshot = n.is_snapshot, outputs = n.outputs, latest_only = n.latest_only,
        foreign_id = n.foreign_id, checkpoint_id = n.checkpoint_id, status = n.status, at = n.at, body = n.body
    FROM jsonb_populate_recordset(NULL::{schema}.commits, effects->'reduced') AS n
    WHERE c.run = of_key AND c.number = n.number;
    DELETE FROM {schema}.commits
    WHERE run = of_key AND number < (effects->>'drop_below')::bigint AND NOT outputs;
END $stepwell$;
"""

_LOG_AND_SIGNALS = """
-- Returns the key of a run, with a row for it.
CREATE FUNCTION {schema}.key_of(of_run text, of_hash bigint) RETURNS bigint LANGUAGE plpgsql AS $stepwell$
DECLARE
    of_key bigint;
BEGIN
    LOOP
        SELECT key INTO of_key FROM {schema}.runs WHERE run_id = of_run;
        EXIT WHEN FOUND;
        INSERT INTO {schema}.runs (run_id, hash, fence) VALUES (of_run, of_hash, 0) ON CONFLICT DO NOTHING;
    END LOOP;
    RETURN of_key;
END $stepwell$;

-- Returns whether it was stored; NULL if another process has acquired the run.
CREATE FUNCTION {schema}.write_log(
    format integer, again boolean, of_run text, of_hash bigint, of_place bigint, new_key text, new_body text,
    lease bigint
) RETURNS boolean {plans} AS $stepwell$
DECLARE
    of_key bigint;
    is_fenced boolean := false;
BEGIN
    {check}
    IF lease IS NOT NULL THEN  -- locked, so that nobody acquires the run before this commits
        SELECT key, fence > lease INTO of_key, is_fenced FROM {schema}.runs WHERE run_id = of_run FOR NO KEY UPDATE;
    END IF;
    of_key := coalesce(of_key, {schema}.key_of(of_run, of_hash));
    IF NOT is_fenced IS TRUE THEN
        INSERT INTO {schema}.superstep_log (run, place, key, body) VALUES (of_key, of_place, new_key, new_body)
        ON CONFLICT DO NOTHING;
        IF FOUND THEN
            RETURN true;
        END IF;
    END IF;
    PERFORM FROM {schema}.superstep_log
    WHERE again AND run = of_key AND place = of_place AND key = new_key AND body = new_body;
    RETURN CASE WHEN FOUND THEN true WHEN is_fenced THEN NULL ELSE false END;
END $stepwell$;

-- Logs the result of a step at the end of the step's own transaction, or makes that transaction fail.
CREATE FUNCTION {schema}.finish_step(
    format integer, step text, of_run text, of_hash bigint, of_place bigint, new_key text, new_body text, lease bigint
) RETURNS void {plans} AS $stepwell$
DECLARE
    is_stored boolean;
BEGIN
    IF current_setting('stepwell.step', true) IS DISTINCT FROM step THEN
        RAISE EXCEPTION 'this is not the transaction that was started for the step' USING ERRCODE = 'HF003';
    END IF;
    is_stored := {schema}.write_log(format, false, of_run, of_hash, of_place, new_key, new_body, lease);
    IF is_stored IS NULL THEN
        RAISE EXCEPTION 'another process has acquired the run' USING ERRCODE = 'HF001';
    ELSIF NOT is_stored THEN
        RAISE EXCEPTION 'the step was done before' USING ERRCODE = 'HF002';
    END IF;
END $stepwell$;

CREATE FUNCTION {schema}.send(
    format integer, again boolean, of_run text, of_hash bigint, new_key text, new_call_id text, new_body text
) RETURNS boolean {plans} AS $stepwell$
DECLARE
    of_key bigint;
BEGIN
    {check}
    of_key := {schema}.key_of(of_run, of_hash);
    INSERT INTO {schema}.signals (run, key, consumed, call_id, body)
    VALUES (of_key, new_key, false, new_call_id, new_body) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        PERFORM FROM {schema}.signals WHERE again AND run = of_key AND key = new_key AND call_id = new_call_id;
    END IF;
    RETURN FOUND;
END $stepwell$;
"""

_LEASES = """
-- Returns the fence of a new lease and, if asked for, everything of the run; or who holds the lease. `ahead` is by how
-- many seconds the clock of a test is ahead; `dead` is an owner whose process is gone.
CREATE FUNCTION {schema}.acquire(
    format integer, again boolean, of_run text, of_hash bigint, new_owner jsonb, seconds float8, ahead float8,
    dead jsonb,
    reads boolean
) RETURNS SETOF {schema}.part {plans} AS $stepwell$
DECLARE
    moment timestamptz := clock_timestamp() + make_interval(secs => ahead);
    ends timestamptz := moment + make_interval(secs => seconds);
    lease bigint;
    holder jsonb;
BEGIN
    {check}
    LOOP
        -- DEFAULT takes the next number of the sequence, which is higher than every fence before.
        UPDATE {schema}.runs SET fence = DEFAULT, owner = new_owner, until = ends
        WHERE run_id = of_run AND (until IS NULL OR until < moment OR owner IN (new_owner, dead))
        RETURNING fence INTO lease;
        EXIT WHEN FOUND;
        SELECT owner || jsonb_build_object('left', extract(epoch FROM until - moment)) INTO holder
        FROM {schema}.runs WHERE run_id = of_run AND until IS NOT NULL;
        IF FOUND THEN
            RETURN NEXT ROW('holder', NULL, holder, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)::{schema}.part;
            RETURN;
        END IF;
        INSERT INTO {schema}.runs (run_id, hash, owner, until) VALUES (of_run, of_hash, new_owner, ends)
        ON CONFLICT DO NOTHING RETURNING fence INTO lease;
        EXIT WHEN FOUND;
    END LOOP;
    RETURN NEXT ROW('lease', lease, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)::{schema}.part;
    IF reads THEN
        RETURN QUERY SELECT * FROM {schema}.read(of_run, NULL, true);
    END IF;
END $stepwell$;

-- Returns the runs that another process has acquired, and those with pending signals.
CREATE FUNCTION {schema}.renew(format integer, again boolean, fences jsonb, seconds float8, ahead float8)
RETURNS text {plans} AS $stepwell$
DECLARE
    report jsonb;
BEGIN
    {check}
    UPDATE {schema}.runs AS r SET until = clock_timestamp() + make_interval(secs => ahead + seconds)
    FROM jsonb_each_text(fences) AS f
    WHERE seconds IS NOT NULL AND r.run_id = f.key AND r.fence = f.value::bigint AND r.until IS NOT NULL;
    SELECT jsonb_build_array(
        coalesce(jsonb_agg(r.run_id) FILTER (WHERE r.fence > f.value::bigint), '[]'),
        coalesce(jsonb_agg(r.run_id) FILTER (WHERE EXISTS (
            SELECT FROM {schema}.signals AS s WHERE s.run = r.key AND NOT s.consumed)), '[]')
    ) INTO report
    FROM {schema}.runs AS r JOIN jsonb_each_text(fences) AS f ON r.run_id = f.key;
    RETURN report;
END $stepwell$;

CREATE FUNCTION {schema}.release(format integer, again boolean, of_run text, of_owner jsonb)
RETURNS void {plans} AS $stepwell$
DECLARE
    run {schema}.runs;
BEGIN
    {check}
    UPDATE {schema}.runs SET owner = NULL, until = NULL WHERE run_id = of_run AND owner = of_owner RETURNING * INTO run;
    IF run.number = -1 THEN
        PERFORM {schema}.drop_if_empty(run.key);
    END IF;
END $stepwell$;

-- Deletes the row of a run that has no lease, no record, no log and no signals: there is no fence to protect.
CREATE FUNCTION {schema}.drop_if_empty(of_key bigint) RETURNS void LANGUAGE plpgsql AS $stepwell$
BEGIN
    DELETE FROM {schema}.runs WHERE key = of_key AND number = -1 AND until IS NULL
        AND NOT EXISTS (SELECT FROM {schema}.superstep_log WHERE run = of_key)
        AND NOT EXISTS (SELECT FROM {schema}.signals WHERE run = of_key);
END $stepwell$;
"""

_READING = """
-- A record, an entry of the superstep log or a signal. Only records have all columns.
CREATE TYPE {schema}.part AS (
    kind text, number bigint, name text, workflow text, status text, iteration bigint, at text, is_snapshot boolean,
    outputs boolean, latest_only boolean, body bytea
);

-- Returns the last snapshot at or before `upto` (the newest record, if it is NULL) and every record up to it; with
-- `everything` also the superstep log and the signals. STABLE: all of it as it is at one moment.
CREATE FUNCTION {schema}.read(of_run text, upto bigint, everything boolean) RETURNS SETOF {schema}.part
STABLE {plans} AS $stepwell$
DECLARE
    run {schema}.runs;
    base bigint;
BEGIN
    SELECT * INTO run FROM {schema}.runs WHERE run_id = of_run;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT c.number INTO upto FROM {schema}.commits AS c
    WHERE c.run = run.key AND (upto IS NULL OR c.number = upto) ORDER BY c.number DESC LIMIT 1;
    SELECT c.number INTO base FROM {schema}.commits AS c
    WHERE c.run = run.key AND c.number <= upto AND c.is_snapshot ORDER BY c.number DESC LIMIT 1;
    RETURN QUERY
    SELECT 'record', c.number, c.checkpoint_id, run.workflow, c.status, c.iteration, c.at, c.is_snapshot, c.outputs,
        c.latest_only, convert_to(c.body, 'UTF8')
    FROM {schema}.commits AS c WHERE c.run = run.key AND c.number BETWEEN coalesce(base, upto) AND upto
    ORDER BY c.number;
    IF everything THEN
        RETURN QUERY
        SELECT 'log', l.place, l.key, NULL::text, NULL::text, NULL::bigint, NULL::text, NULL::boolean, NULL::boolean,
            NULL::boolean, convert_to(l.body, 'UTF8')
        FROM {schema}.superstep_log AS l WHERE l.run = run.key;
        RETURN QUERY
        SELECT 'signal', s.seq, s.key, NULL::text, NULL::text, NULL::bigint, NULL::text, NULL::boolean, NULL::boolean,
            NULL::boolean, convert_to(s.body, 'UTF8')
        FROM {schema}.signals AS s WHERE s.run = run.key AND NOT s.consumed ORDER BY s.seq;
    END IF;
END $stepwell$;
"""

_MAINTENANCE = """
-- `changes` has `insert` and `replace`, lists of records, and `remove`, a list of numbers. Returns how many were
-- removed, or why nothing was changed.
CREATE FUNCTION {schema}.rewrite(
    format integer, again boolean, of_run text, of_hash bigint, changes jsonb, effects jsonb, log_through bigint,
    new_wake text, lease bigint
) RETURNS text {plans} AS $stepwell$
DECLARE
    run {schema}.runs;
    newest {schema}.commits;
    inserted bigint := changes->'insert'->0->'number';
    stored bigint[];
    going bigint[];
    changed bigint[];
    written jsonb;
    based bigint;
BEGIN
    {check}
    IF inserted IS NOT NULL THEN
        PERFORM {schema}.key_of(of_run, of_hash);
    END IF;
    SELECT * INTO run FROM {schema}.runs WHERE run_id = of_run FOR UPDATE;
    stored := ARRAY(SELECT number FROM {schema}.commits WHERE commits.run = run.key);
    going := ARRAY(SELECT n::bigint FROM jsonb_array_elements_text(changes->'remove') AS n
        WHERE n::bigint = ANY (stored) AND n::bigint IS DISTINCT FROM inserted);
    SELECT coalesce(jsonb_agg(w), '[]'), array_agg((w->'number')::bigint) INTO written, changed
    FROM (
        SELECT w FROM jsonb_array_elements(changes->'replace') AS w
        WHERE (w->'number')::bigint = ANY (stored) AND (w->'number')::bigint <> ALL (going)
            AND (w->'number')::bigint IS DISTINCT FROM inserted
        UNION ALL SELECT w FROM jsonb_array_elements(changes->'insert') AS w
    ) AS records (w);
    SELECT c.number - 1 INTO based FROM {schema}.commits AS c
    WHERE c.run = run.key AND NOT c.is_snapshot AND c.number - 1 = ANY (going) AND c.number <> ALL (going || changed)
    ORDER BY 1 LIMIT 1;
    IF run.fence > lease THEN
        RETURN {schema}.position(of_run);
    ELSIF run.number = ANY (going) AND effects IS NULL THEN
        RETURN jsonb_build_object('newest', run.number);
    ELSIF based IS NOT NULL THEN
        RETURN jsonb_build_object('based', based);
    ELSIF EXISTS (SELECT FROM jsonb_array_elements(written) AS w WHERE w->>'workflow' <> run.workflow) THEN
        RETURN {schema}.position(of_run);
    END IF;
    DELETE FROM {schema}.commits AS c WHERE c.run = run.key AND c.number = ANY (going || changed);
    INSERT INTO {schema}.commits
        (run, number, iteration, is_snapshot, outputs, latest_only, foreign_id, checkpoint_id, status, at, body)
    SELECT run.key, w.number, w.iteration, w.is_snapshot, w.outputs, w.latest_only, w.foreign_id, w.checkpoint_id,
        w.status, w.at, w.body
    FROM jsonb_populate_recordset(NULL::{schema}.commits, written) AS w;
    SELECT * INTO newest FROM {schema}.commits AS c WHERE c.run = run.key ORDER BY c.number DESC LIMIT 1;
    IF NOT FOUND THEN
        IF cardinality(going) > 0 THEN
            PERFORM {schema}.clear(run.key, of_run);
        END IF;
        RETURN CASE WHEN again THEN jsonb_array_length(changes->'remove') ELSE cardinality(going) END;
    END IF;
    UPDATE {schema}.runs AS r SET
        workflow = coalesce(r.workflow, written->0->>'workflow'), began = coalesce(r.began, newest.at),
        status = newest.status, number = newest.number, iteration = newest.iteration,
        checkpoint_id = newest.checkpoint_id, at = newest.at,
        in_order = (SELECT bool_and(o.rises) FROM (
            SELECT c.at >= lag(c.at, 1, '') OVER (ORDER BY c.number) AS rises FROM {schema}.commits AS c
            WHERE c.run = run.key) AS o)
    WHERE r.key = run.key;
    DELETE FROM {schema}.superstep_log AS l
    WHERE l.run = run.key AND (l.place > newest.number OR l.place <= log_through);
    IF effects IS NOT NULL THEN
        PERFORM {schema}.apply(run.key, effects);
        IF run.number = ANY (going) OR inserted = newest.number THEN
            DELETE FROM {schema}.requests WHERE run_id = of_run;
            PERFORM {schema}.open_requests(of_run, effects);
            UPDATE {schema}.runs SET wake = new_wake WHERE key = run.key;
        END IF;
    END IF;
    RETURN CASE WHEN again THEN jsonb_array_length(changes->'remove') ELSE cardinality(going) END;
END $stepwell$;

CREATE FUNCTION {schema}.drop(format integer, again boolean, of_run text) RETURNS boolean {plans} AS $stepwell$
DECLARE
    run {schema}.runs;
BEGIN
    {check}
    UPDATE {schema}.runs SET owner = NULL, until = NULL WHERE run_id = of_run AND number >= 0 RETURNING * INTO run;
    IF NOT FOUND THEN
        RETURN again;
    END IF;
    DELETE FROM {schema}.commits AS c WHERE c.run = run.key;
    PERFORM {schema}.clear(run.key, of_run);
    RETURN true;
END $stepwell$;

-- Deletes everything of a run that has no records any more, except for a lease that is held and its fence.
CREATE FUNCTION {schema}.clear(of_key bigint, of_run text) RETURNS void LANGUAGE plpgsql AS $stepwell$
BEGIN
    DELETE FROM {schema}.superstep_log WHERE run = of_key;
    DELETE FROM {schema}.signals WHERE run = of_key;
    DELETE FROM {schema}.requests WHERE run_id = of_run;
    DELETE FROM {schema}.tags WHERE run = of_key;
    UPDATE {schema}.runs SET
        workflow = NULL, began = NULL, is_child = false, caller = NULL, tags = '{}', wake = NULL, status = NULL,
        number = -1, iteration = NULL, checkpoint_id = NULL, at = NULL, in_order = true
    WHERE key = of_key;
    PERFORM {schema}.drop_if_empty(of_key);
END $stepwell$;
"""

FUNCTIONS = (
    (_READING + _APPEND + _LOG_AND_SIGNALS + _LEASES + _MAINTENANCE)
    .replace("{check}", _CHECK.strip())
    .replace("{plans}", _PLANS)
)
