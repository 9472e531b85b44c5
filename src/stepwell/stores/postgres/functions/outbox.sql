-- Writes what webhooks are told of a commit, before its requests are changed and its metadata is set. `ends` says
-- whether the run comes to the new status with it. Without webhooks, this is one look at an empty table.
CREATE FUNCTION {schema}.enqueue(
    of_run text, of_number bigint, of_workflow text, new_at text, effects jsonb, new_status text, ends boolean
) RETURNS void LANGUAGE plpgsql AS $stepwell$
BEGIN
    IF NOT EXISTS (SELECT FROM {schema}.webhooks) THEN
        RETURN;
    END IF;
    INSERT INTO {schema}.outbox (webhook, run_id, number, kind, workflow, at, request, due)
    SELECT w.id, of_run, of_number, c.kind, of_workflow, new_at, c.request, new_at
    FROM (
        SELECT 1 AS part, e.n, 'request.expired' AS kind, to_jsonb(q) - 'seq' AS request
        FROM jsonb_array_elements_text(effects->'expired') WITH ORDINALITY AS e (request_id, n)
        JOIN {schema}.requests AS q ON q.run_id = of_run AND q.request_id = e.request_id
        UNION ALL
        -- One that the superstep log has asked is open already.
        SELECT 2, a.n, 'request.asked', a.request
        FROM jsonb_array_elements(effects->'asked') WITH ORDINALITY AS a (request, n)
        WHERE NOT EXISTS (SELECT FROM {schema}.requests AS q WHERE q.run_id = of_run
            AND q.request_id = a.request->>'request_id' AND q.at = a.request->>'at')
        UNION ALL
        SELECT 3, 1, CASE new_status WHEN 'IDLE' THEN 'run.completed' WHEN 'FAILED' THEN 'run.failed'
            ELSE 'run.cancelled' END, NULL
        WHERE ends AND new_status IN ('IDLE', 'FAILED', 'CANCELLED')
            -- Nobody is told of the end of a run that works for another one.
            AND effects->'metadata'->>'caller' IS NULL
            AND NOT EXISTS (SELECT FROM {schema}.runs AS r WHERE r.run_id = of_run AND r.is_child)
    ) AS c, {schema}.webhooks AS w
    WHERE NOT w.stopped AND (w.workflow IS NULL OR w.workflow = of_workflow)
        AND (w.kinds = '[]' OR w.kinds ? c.kind)
    ORDER BY c.part, c.n, w.id;
END $stepwell$;

CREATE FUNCTION {schema}.put_webhook(
    format integer, again boolean, new_id text, new_workflow text, new_kinds jsonb, is_stopped boolean, new_body text
) RETURNS void {plans} AS $stepwell$
BEGIN
    {check}
    INSERT INTO {schema}.webhooks (id, workflow, kinds, stopped, body)
    VALUES (new_id, new_workflow, new_kinds, is_stopped, new_body)
    ON CONFLICT (id) DO UPDATE SET workflow = new_workflow, kinds = new_kinds, stopped = is_stopped, body = new_body;
END $stepwell$;

CREATE FUNCTION {schema}.remove_webhook(format integer, again boolean, of_id text)
RETURNS boolean {plans} AS $stepwell$
BEGIN
    {check}
    DELETE FROM {schema}.outbox WHERE webhook = of_id;
    DELETE FROM {schema}.webhooks WHERE id = of_id;
    RETURN FOUND OR again;
END $stepwell$;

-- Without `attempt` the message was delivered, and is deleted.
CREATE FUNCTION {schema}.settle(format integer, again boolean, of_position bigint, attempt jsonb)
RETURNS void {plans} AS $stepwell$
BEGIN
    {check}
    IF attempt IS NULL THEN
        DELETE FROM {schema}.outbox WHERE position = of_position;
    ELSE
        UPDATE {schema}.outbox SET
            attempts = (attempt->'attempts')::integer, due = attempt->>'due', error = attempt->>'error'
        WHERE position = of_position;
    END IF;
END $stepwell$;
