-- A record, an entry of the superstep log or a signal. Only records have all columns.
CREATE TYPE {schema}.part AS (
    kind text, number bigint, name text, workflow text, status text, iteration bigint, at text, is_snapshot boolean,
    outputs boolean, latest_only boolean, decisions boolean, body bytea
);

-- Returns the last snapshot at or before `upto` (the newest record, if it is NULL) and every record up to it; with
-- `everything` also the superstep log and the signals. STABLE: all of it as it is at one moment.
CREATE FUNCTION {schema}.read(of_run text, upto bigint, everything boolean) RETURNS SETOF {schema}.part
STABLE {plans} AS $stepwell$
DECLARE
    run {schema}.runs;
    base bigint;
    newest bigint;
BEGIN
    SELECT * INTO run FROM {schema}.runs WHERE run_id = of_run;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    -- A range, not an equality: without statistics the planner takes few rows to be equal, and reads all of the run.
    SELECT c.number INTO newest FROM {schema}.commits AS c
    WHERE c.run = run.key AND c.number <= coalesce(upto, 9223372036854775807) ORDER BY c.number DESC LIMIT 1;
    upto := CASE WHEN upto IS NULL OR newest = upto THEN newest END;
    SELECT c.number INTO base FROM {schema}.commits AS c
    WHERE c.run = run.key AND c.number <= upto AND c.is_snapshot ORDER BY c.number DESC LIMIT 1;
    RETURN QUERY
    SELECT 'record', c.number, c.checkpoint_id, run.workflow, c.status, c.iteration, c.at, c.is_snapshot, c.outputs,
        c.latest_only, c.decisions, convert_to(c.body, 'UTF8')
    FROM {schema}.commits AS c WHERE c.run = run.key AND c.number BETWEEN coalesce(base, upto) AND upto
    ORDER BY c.number;
    IF everything THEN
        RETURN QUERY
        SELECT 'log', l.place, l.key, NULL::text, NULL::text, NULL::bigint, NULL::text, NULL::boolean, NULL::boolean,
            NULL::boolean, NULL::boolean, convert_to(l.body, 'UTF8')
        FROM {schema}.superstep_log AS l WHERE l.run = run.key;
        RETURN QUERY
        SELECT 'signal', s.seq, s.key, NULL::text, NULL::text, NULL::bigint, NULL::text, NULL::boolean, NULL::boolean,
            NULL::boolean, NULL::boolean, convert_to(s.body, 'UTF8')
        FROM {schema}.signals AS s WHERE s.run = run.key AND NOT s.consumed ORDER BY s.seq;
    END IF;
END $stepwell$;
