-- Returns NULL if the record was stored; otherwise where the run is.
CREATE FUNCTION {schema}.append(
    format integer, again boolean, of_run text, of_hash bigint, new_number bigint, new_id text, is_foreign boolean,
    of_workflow text, new_status text, new_iteration bigint, new_at text, new_snapshot boolean, new_outputs boolean,
    new_latest_only boolean, new_decisions boolean, new_body text, log_through bigint, new_wake text, lease bigint, ends_lease boolean,
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
            iteration = new_iteration, checkpoint_id = new_id, at = new_at, takeovers = 0,
            owner = CASE WHEN ends_lease AND r.fence = lease THEN NULL ELSE r.owner END,
            until = CASE WHEN ends_lease AND r.fence = lease THEN NULL ELSE r.until END
        WHERE r.number = -1 AND (lease IS NULL OR r.fence <= lease)
        RETURNING key INTO of_key;
    ELSE
        UPDATE {schema}.runs AS r SET
            -- A run that could be driven before, and still can, keeps its time: see `ready_from`.
            wake = CASE WHEN new_wake = new_at AND r.wake < new_at THEN r.wake ELSE new_wake END,
            takeovers = 0, status = new_status, number = new_number, iteration = new_iteration,
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
        (run, number, iteration, is_snapshot, outputs, latest_only, decisions, foreign_id, checkpoint_id, status, at, body)
    VALUES (of_key, new_number, new_iteration, new_snapshot, new_outputs, new_latest_only, new_decisions, is_foreign, new_id,
        new_status,
        new_at, new_body);
    IF log_through IS NOT NULL THEN
        DELETE FROM {schema}.superstep_log WHERE run = of_key AND place <= log_through;
    END IF;
    -- A run that fails again fails; one that is completed or cancelled stays so: see `is_end`.
    IF new_status IN ('IDLE', 'FAILED', 'CANCELLED') OR effects ?| ARRAY['asked', 'expired'] THEN
        PERFORM {schema}.enqueue(of_run, new_number, of_workflow, new_at, effects, new_status, NOT EXISTS (
            SELECT FROM {schema}.commits AS c
            WHERE c.run = of_key AND c.number = new_number - 1 AND c.status = new_status AND new_status <> 'FAILED'));
    END IF;
    IF effects IS NOT NULL THEN
        PERFORM {schema}.change_requests(of_run, effects);
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

-- Closes requests, and then opens others. One that is asked again becomes the last one asked.
CREATE FUNCTION {schema}.change_requests(of_run text, effects jsonb) RETURNS void LANGUAGE plpgsql AS $stepwell$
BEGIN
    DELETE FROM {schema}.requests
    WHERE run_id = of_run AND request_id IN (
        SELECT jsonb_array_elements_text(effects->'closed')
        UNION ALL SELECT a->>'request_id' FROM jsonb_array_elements(effects->'asked') AS a);
    INSERT INTO {schema}.requests
        (run_id, request_id, workflow, executor, request_type, response_type, schema, at, deadline, body)
    SELECT q.run_id, q.request_id, q.workflow, q.executor, q.request_type, q.response_type, q.schema, q.at, q.deadline,
        q.body
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
            tags = effects->'metadata'->'tags', priority = (effects->'metadata'->>'priority')::smallint,
            parent_run = effects->'metadata'->>'parent_run', parent_id = effects->'metadata'->>'parent_id',
            parent_number = (effects->'metadata'->>'parent_number')::bigint
        WHERE key = of_key
            AND (caller IS DISTINCT FROM effects->'metadata'->>'caller' OR tags <> effects->'metadata'->'tags'
                OR parent_id IS DISTINCT FROM effects->'metadata'->>'parent_id'
                OR priority <> (effects->'metadata'->>'priority')::smallint);
        IF FOUND THEN
            DELETE FROM {schema}.tags WHERE run = of_key;
            INSERT INTO {schema}.tags (run, name, value, is_child, began, run_id)
            SELECT r.key, t.key, t.value, r.is_child, r.began, r.run_id
            FROM {schema}.runs AS r, jsonb_each_text(r.tags) AS t WHERE r.key = of_key;
        END IF;
    END IF;
    UPDATE {schema}.commits AS c SET
        iteration = n.iteration, is_snapshot = n.is_snapshot, outputs = n.outputs, latest_only = n.latest_only, decisions = n.decisions,
        foreign_id = n.foreign_id, checkpoint_id = n.checkpoint_id, status = n.status, at = n.at, body = n.body
    FROM jsonb_populate_recordset(NULL::{schema}.commits, effects->'reduced') AS n
    WHERE c.run = of_key AND c.number = n.number;
    DELETE FROM {schema}.commits
    WHERE run = of_key AND number < (effects->>'drop_below')::bigint AND NOT outputs;
END $stepwell$;
