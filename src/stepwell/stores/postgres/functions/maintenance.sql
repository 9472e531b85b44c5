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
        (run, number, iteration, is_snapshot, outputs, latest_only, decisions, foreign_id, checkpoint_id, status, at, body)
    SELECT run.key, w.number, w.iteration, w.is_snapshot, w.outputs, w.latest_only, w.decisions, w.foreign_id, w.checkpoint_id,
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
            PERFORM {schema}.change_requests(of_run, effects - 'closed');
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
    DELETE FROM {schema}.outbox WHERE run_id = of_run;
    DELETE FROM {schema}.tags WHERE run = of_key;
    UPDATE {schema}.runs SET
        workflow = NULL, began = NULL, is_child = false, caller = NULL, parent_run = NULL, parent_number = NULL,
        parent_id = NULL, tags = '{}', priority = 0, wake = NULL, status = NULL, number = -1, iteration = NULL, checkpoint_id = NULL, at = NULL, in_order = true
    WHERE key = of_key;
    PERFORM {schema}.drop_if_empty(of_key);
END $stepwell$;
