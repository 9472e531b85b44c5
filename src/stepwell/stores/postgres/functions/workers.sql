-- Returns whether the worker was stored: another process may have its name. `ahead` is as in `acquire`.
CREATE FUNCTION {schema}.announce_worker(
    format integer, again boolean, of_name text, of_process text, new_body text, alive float8, kept float8, ahead float8
) RETURNS boolean {plans} AS $stepwell$
DECLARE
    moment timestamptz := clock_timestamp() + make_interval(secs => ahead);
BEGIN
    {check}
    DELETE FROM {schema}.workers WHERE seen < moment - make_interval(secs => kept);
    INSERT INTO {schema}.workers AS w (name, process, seen, body) VALUES (of_name, of_process, moment, new_body)
    ON CONFLICT (name) DO UPDATE SET process = of_process, seen = moment, body = new_body
        WHERE w.process = of_process OR w.seen < moment - make_interval(secs => alive);
    RETURN FOUND;
END $stepwell$;

CREATE FUNCTION {schema}.withdraw_worker(format integer, again boolean, of_name text, of_process text)
RETURNS void {plans} AS $stepwell$
BEGIN
    {check}
    DELETE FROM {schema}.workers WHERE name = of_name AND process = of_process;
END $stepwell$;
