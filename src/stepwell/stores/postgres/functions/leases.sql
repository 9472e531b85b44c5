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
    of_key bigint;
    lost integer := 0;
    holder jsonb;
BEGIN
    {check}
    LOOP
        -- DEFAULT takes the next number of the sequence, which is higher than every fence before.
        UPDATE {schema}.runs SET
            fence = DEFAULT, owner = new_owner, until = ends,
            takeovers = takeovers + CASE WHEN owner <> new_owner AND until IS NOT NULL THEN 1 ELSE 0 END
        WHERE run_id = of_run AND (until IS NULL OR until < moment OR owner IN (new_owner, dead))
        RETURNING fence, key, takeovers INTO lease, of_key, lost;
        EXIT WHEN FOUND;
        SELECT jsonb_build_array(owner, extract(epoch FROM until - moment)) INTO holder
        FROM {schema}.runs WHERE run_id = of_run AND until IS NOT NULL;
        IF FOUND THEN
            RETURN NEXT ROW('holder', NULL, holder, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)::{schema}.part;
            RETURN;
        END IF;
        INSERT INTO {schema}.runs (run_id, hash, owner, until) VALUES (of_run, of_hash, new_owner, ends)
        ON CONFLICT DO NOTHING RETURNING fence, key INTO lease, of_key;
        EXIT WHEN FOUND;
    END LOOP;
    RETURN NEXT ROW('lease', lease, NULL, NULL, NULL, lost, NULL, NULL,
        EXISTS (SELECT FROM {schema}.commits AS c WHERE c.run = of_key AND c.outputs), NULL, NULL, NULL)::{schema}.part;
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

-- `stalls`: in the middle of the work, so the run keeps the owner, without an end of the lease.
CREATE FUNCTION {schema}.release(format integer, again boolean, of_run text, of_owner jsonb, stalls boolean)
RETURNS void {plans} AS $stepwell$
DECLARE
    run {schema}.runs;
BEGIN
    {check}
    UPDATE {schema}.runs SET owner = CASE WHEN stalls AND number >= 0 THEN owner END, until = NULL
    WHERE run_id = of_run AND owner = of_owner RETURNING * INTO run;
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
