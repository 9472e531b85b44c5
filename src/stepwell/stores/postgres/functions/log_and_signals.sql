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
    lease bigint, effects jsonb
) RETURNS boolean {plans} AS $stepwell$
DECLARE
    of_key bigint;
    is_fenced boolean := false;
    log_time text;
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
            IF effects IS NOT NULL THEN
                IF effects ?| ARRAY['asked', 'expired'] THEN
                    -- As our programs write times.
                    log_time := to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"');
                    PERFORM {schema}.enqueue(r.run_id, r.number + 1, r.workflow, log_time, effects, NULL, false)
                    FROM {schema}.runs AS r WHERE r.key = of_key AND r.workflow IS NOT NULL;
                END IF;
                PERFORM {schema}.change_requests(of_run, effects);
                PERFORM {schema}.apply(of_key, effects);
            END IF;
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
    is_stored := {schema}.write_log(format, false, of_run, of_hash, of_place, new_key, new_body, lease, NULL);
    IF is_stored IS NULL THEN
        RAISE EXCEPTION 'another process has acquired the run' USING ERRCODE = 'HF001';
    ELSIF NOT is_stored THEN
        RAISE EXCEPTION 'the step was done before' USING ERRCODE = 'HF002';
    END IF;
END $stepwell$;

-- Returns whether it was stored; NULL if another process has acquired the run.
CREATE FUNCTION {schema}.send(
    format integer, again boolean, of_run text, of_hash bigint, new_key text, new_call_id text, new_body text,
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
        INSERT INTO {schema}.signals (run, key, consumed, call_id, body)
        VALUES (of_key, new_key, false, new_call_id, new_body) ON CONFLICT DO NOTHING;
        IF FOUND THEN
            RETURN true;
        END IF;
    END IF;
    PERFORM FROM {schema}.signals WHERE again AND run = of_key AND key = new_key AND call_id = new_call_id;
    RETURN CASE WHEN FOUND THEN true WHEN is_fenced THEN NULL ELSE false END;
END $stepwell$;
