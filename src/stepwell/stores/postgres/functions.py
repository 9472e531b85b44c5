"""The writes, as functions in the database.

All writes that are waiting at one moment are one call of `work`: one statement, one round trip, one
commit, applied in the order in which they were submitted. No client can die in the middle of it while
it holds a lock. The database caches the plans of its functions, even behind a pooler that hands out
another connection each time.

Every job is a JSON object: `do` names the function, the other keys are its arguments. The text that
goes with it, such as the body of a record, is passed beside it, in `bodies`. `again` is set if the job
may have been done already by a statement whose answer was lost: if it is refused, and exactly what it
wanted to store is there, then that statement did it, and the answer is success.

The caller passes the format it writes. A program that was already running when a newer one upgraded
the schema is refused and writes nothing.

Most writes are a single record after the first of its run, without further effects. For these there is
`add`: it takes the columns as arguments, which costs both sides less than JSON.
"""

# `{schema}` and `{format}` are replaced, not passed: the text of a function cannot have parameters.
# The functions of one format must stay compatible with all programs of that format, which call them
# by position.
FUNCTIONS = r"""
CREATE FUNCTION {schema}.work(format integer, jobs jsonb, bodies text[]) RETURNS jsonb[] LANGUAGE plpgsql
    SET enable_seqscan = off SET plan_cache_mode = force_generic_plan  -- a cached plan must not rely on small tables
AS $stepwell$
DECLARE
    job jsonb;
    answer jsonb;
    answers jsonb[] := '{}';
    n integer := 0;
BEGIN
    IF format <> {format} THEN
        RAISE EXCEPTION 'a newer Stepwell has upgraded the schema to format {format}; upgrade this program, too';
    END IF;
    IF current_setting('synchronous_commit') = 'off' THEN  -- a commit we report must survive a crash
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    FOR job IN SELECT jsonb_array_elements(jobs) LOOP
        n := n + 1;
        CASE job->>'do'
            WHEN 'append' THEN answer := {schema}.append(job, bodies[n]);
            WHEN 'remember' THEN answer := {schema}.remember(job, bodies[n]);
            WHEN 'post' THEN answer := {schema}.post(job, bodies[n]);
            WHEN 'claim' THEN answer := {schema}.claim(job);
            WHEN 'renew' THEN answer := {schema}.renew(job);
            WHEN 'release' THEN answer := {schema}.release(job);
            WHEN 'put' THEN answer := {schema}.put(job, bodies[n]);
            WHEN 'remove' THEN answer := {schema}.remove(job, bodies[n]);
            WHEN 'thin_out' THEN answer := {schema}.thin_out(job, bodies[n]);
            WHEN 'drop' THEN answer := {schema}.drop(job);
            WHEN 'finish' THEN answer := {schema}.finish(job, bodies[n]);
        END CASE;
        answers[n] := answer;
    END LOOP;
    RETURN answers;
END $stepwell$;

CREATE FUNCTION {schema}.append(job jsonb, new_body text) RETURNS jsonb LANGUAGE plpgsql AS $stepwell$
DECLARE
    entry {schema}.commits := jsonb_populate_record(NULL::{schema}.commits, job);
    claimed bigint := coalesce((job->>'fence')::bigint, 9223372036854775807);
BEGIN
    -- The check and the lock in one: only a run that is where the writer saw it is updated.
    IF entry.number = 0 THEN  -- the run may have a row already, because it is leased
        INSERT INTO {schema}.runs AS r (run_id, workflow, latest, wake, fence, status, began)
        VALUES (entry.run_id, entry.workflow, 0, job->>'wake', coalesce((job->>'fence')::bigint, 0), entry.status,
                entry.at)
        ON CONFLICT (run_id) DO UPDATE SET
            workflow = excluded.workflow, latest = 0, wake = excluded.wake, status = excluded.status,
            began = excluded.began
        WHERE r.latest = -1 AND r.fence <= claimed;
    ELSE
        UPDATE {schema}.runs SET latest = entry.number, wake = job->>'wake', status = entry.status
        WHERE run_id = entry.run_id AND latest = entry.number - 1 AND workflow = entry.workflow AND fence <= claimed;
    END IF;
    IF NOT FOUND THEN
        PERFORM FROM {schema}.commits AS c
        WHERE job ? 'again' AND c.run_id = entry.run_id AND c.number = entry.number
            AND c.checkpoint_id = entry.checkpoint_id AND c.at = entry.at AND c.body = new_body;
        RETURN CASE WHEN FOUND THEN 'true' ELSE {schema}.standing(entry.run_id) END;
    END IF;
    INSERT INTO {schema}.commits
        (run_id, number, checkpoint_id, workflow, status, iteration, at, frame, outputs, fleeting, body)
    VALUES (entry.run_id, entry.number, entry.checkpoint_id, entry.workflow, entry.status, entry.iteration, entry.at,
            entry.frame, entry.outputs, entry.fleeting, new_body);
    IF job ? 'settled' THEN
        DELETE FROM {schema}.memory WHERE run_id = entry.run_id AND place <= (job->>'settled')::bigint;
    END IF;
    IF job ? 'closed' THEN
        DELETE FROM {schema}.requests
        WHERE run_id = entry.run_id AND request_id IN (SELECT jsonb_array_elements_text(job->'closed'));
    END IF;
    IF job ?| '{consumed, asked, about, drop_below, reduced}' THEN  -- rare, so kept out of the common path
        PERFORM {schema}.along(entry.run_id, job);
    END IF;
    RETURN 'true';
END $stepwell$;

-- Does what `append` does for a record after the first that has no effects but these arguments. Returns what `work`
-- would.
CREATE FUNCTION {schema}.add(
    format integer, of_run text, n bigint, checkpoint text, of_workflow text, now_status text, iterations bigint,
    made_at text, is_frame boolean, has_outputs boolean, is_fleeting boolean, new_body text, settled bigint,
    wake_at text, claim bigint
) RETURNS text LANGUAGE plpgsql
    SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $stepwell$
BEGIN
    IF format <> {format} THEN
        RAISE EXCEPTION 'a newer Stepwell has upgraded the schema to format {format}; upgrade this program, too';
    END IF;
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    UPDATE {schema}.runs SET latest = n, wake = wake_at, status = now_status
    WHERE run_id = of_run AND latest = n - 1 AND workflow = of_workflow AND fence <= claim;
    IF NOT FOUND THEN
        RETURN jsonb_build_array({schema}.standing(of_run));
    END IF;
    INSERT INTO {schema}.commits
        (run_id, number, checkpoint_id, workflow, status, iteration, at, frame, outputs, fleeting, body)
    VALUES (of_run, n, checkpoint, of_workflow, now_status, iterations, made_at, is_frame, has_outputs, is_fleeting,
            new_body);
    IF settled IS NOT NULL THEN
        DELETE FROM {schema}.memory WHERE run_id = of_run AND place <= settled;
    END IF;
    RETURN '[true]';
END $stepwell$;

CREATE FUNCTION {schema}.put(job jsonb, new_body text) RETURNS jsonb LANGUAGE plpgsql AS $stepwell$
DECLARE
    entry {schema}.commits := jsonb_populate_record(NULL::{schema}.commits, job);
    run {schema}.runs;
    newest boolean;
BEGIN
    INSERT INTO {schema}.runs AS r (run_id, latest, fence)
    VALUES (entry.run_id, -1, coalesce((job->>'fence')::bigint, 0))
    ON CONFLICT (run_id) DO UPDATE SET latest = r.latest  -- changes nothing, but locks the row
    RETURNING * INTO run;
    IF run.workflow <> entry.workflow OR run.fence > (job->>'fence')::bigint THEN
        RETURN {schema}.standing(entry.run_id);
    END IF;
    newest := entry.number >= run.latest;
    UPDATE {schema}.runs SET
        workflow = entry.workflow, began = coalesce(began, entry.at), latest = greatest(latest, entry.number),
        status = CASE WHEN newest THEN entry.status ELSE status END,
        wake = CASE WHEN newest THEN job->>'wake' ELSE wake END
    WHERE run_id = entry.run_id;
    -- Deleted and inserted, not updated: the record gets a new `seq` and so counts as committed now.
    DELETE FROM {schema}.commits WHERE run_id = entry.run_id AND number = entry.number;
    INSERT INTO {schema}.commits
        (run_id, number, checkpoint_id, workflow, status, iteration, at, frame, outputs, fleeting, body)
    VALUES (entry.run_id, entry.number, entry.checkpoint_id, entry.workflow, entry.status, entry.iteration, entry.at,
            entry.frame, entry.outputs, entry.fleeting, new_body);
    IF job ? 'settled' THEN
        DELETE FROM {schema}.memory WHERE run_id = entry.run_id AND place <= (job->>'settled')::bigint;
    END IF;
    IF newest THEN
        DELETE FROM {schema}.requests WHERE run_id = entry.run_id;
    END IF;
    PERFORM {schema}.along(entry.run_id, CASE WHEN newest THEN job ELSE job - 'asked' END);
    RETURN 'true';
END $stepwell$;

-- The rarer effects of a record.
CREATE FUNCTION {schema}.along(run text, job jsonb) RETURNS void LANGUAGE plpgsql AS $stepwell$
BEGIN
    IF job ? 'consumed' THEN
        INSERT INTO {schema}.mail (run_id, key, consumed, body)
        SELECT run, jsonb_array_elements_text(job->'consumed'), true, 'null'
        ON CONFLICT (run_id, key) DO UPDATE SET consumed = true, body = excluded.body;
    END IF;
    IF job ? 'asked' THEN
        INSERT INTO {schema}.requests
            (run_id, request_id, workflow, executor, request_type, response_type, schema, at, deadline)
        SELECT q.run_id, q.request_id, q.workflow, q.executor, q.request_type, q.response_type, q.schema, q.at,
            q.deadline
        FROM jsonb_populate_recordset(NULL::{schema}.requests, job->'asked') AS q;
    END IF;
    IF job ? 'about' THEN
        UPDATE {schema}.runs SET caller = job->'about'->>'caller', called = job->'about'->>'caller' IS NOT NULL
        WHERE run_id = run AND caller IS DISTINCT FROM job->'about'->>'caller';
        DELETE FROM {schema}.tags WHERE run_id = run;
        INSERT INTO {schema}.tags (run_id, name, value, called, began)
        SELECT r.run_id, t.key, t.value, r.called, r.began
        FROM {schema}.runs AS r, jsonb_each_text(job->'about'->'tags') AS t WHERE r.run_id = run;
    END IF;
    IF job ? 'reduced' THEN
        UPDATE {schema}.commits AS c SET frame = k.frame, body = k.body
        FROM jsonb_populate_recordset(NULL::{schema}.commits, job->'reduced') AS k
        WHERE c.run_id = run AND c.number = k.number AND c.checkpoint_id = k.checkpoint_id;
    END IF;
    IF job ? 'drop_below' THEN
        DELETE FROM {schema}.commits WHERE run_id = run AND number < (job->>'drop_below')::bigint AND NOT outputs;
    END IF;
END $stepwell$;

-- The entry in the job is the follower, if there is a body; `gone` is the number of the record to remove.
CREATE FUNCTION {schema}.remove(job jsonb, new_body text) RETURNS jsonb LANGUAGE plpgsql AS $stepwell$
DECLARE
    follower {schema}.commits := jsonb_populate_record(NULL::{schema}.commits, job);
    gone bigint := job->>'gone';
    run {schema}.runs;
    next {schema}.commits;
    last {schema}.commits;
BEGIN
    SELECT * INTO run FROM {schema}.runs WHERE run_id = follower.run_id FOR UPDATE;
    PERFORM FROM {schema}.commits WHERE run_id = follower.run_id AND number = gone;
    IF NOT FOUND THEN
        RETURN to_jsonb(job ? 'again');
    END IF;
    SELECT * INTO next FROM {schema}.commits WHERE run_id = follower.run_id AND number = gone + 1;
    IF FOUND AND new_body IS NULL AND NOT next.frame THEN
        RETURN '"based"';
    ELSIF FOUND AND new_body IS NOT NULL THEN
        IF follower.workflow <> run.workflow THEN
            RETURN {schema}.standing(follower.run_id);
        END IF;
        UPDATE {schema}.commits SET
            checkpoint_id = follower.checkpoint_id, status = follower.status, iteration = follower.iteration,
            at = follower.at, frame = follower.frame, outputs = follower.outputs, fleeting = follower.fleeting,
            body = new_body
        WHERE run_id = follower.run_id AND number = gone + 1;
    END IF;
    DELETE FROM {schema}.commits WHERE run_id = follower.run_id AND number = gone;
    SELECT * INTO last FROM {schema}.commits WHERE run_id = follower.run_id ORDER BY number DESC LIMIT 1;
    DELETE FROM {schema}.memory WHERE run_id = follower.run_id AND place > coalesce(last.number, -1);
    IF last.number IS NULL THEN
        PERFORM {schema}.forget(follower.run_id);
        DELETE FROM {schema}.runs WHERE run_id = follower.run_id AND until IS NULL;
        UPDATE {schema}.runs SET  -- it is leased, so the row stays
            latest = -1, workflow = NULL, status = NULL, began = NULL, wake = NULL, caller = NULL, called = false
        WHERE run_id = follower.run_id;
        RETURN 'true';
    END IF;
    UPDATE {schema}.runs SET
        latest = last.number, status = last.status, wake = CASE WHEN last.number < gone THEN job->>'wake' ELSE wake END
    WHERE run_id = follower.run_id;
    IF last.number < gone THEN
        DELETE FROM {schema}.requests WHERE run_id = follower.run_id;
        PERFORM {schema}.along(follower.run_id, job);
    END IF;
    RETURN 'true';
END $stepwell$;

-- `gone` are the numbers of the records to remove; `replacing` is a JSON list of records that replace stored ones.
-- Returns how many were removed, or why none was.
CREATE FUNCTION {schema}.thin_out(job jsonb, replacing text) RETURNS jsonb LANGUAGE plpgsql AS $stepwell$
DECLARE
    run {schema}.runs;
    going bigint[] := ARRAY(SELECT jsonb_array_elements_text(job->'gone')::bigint);
    whole {schema}.commits[] := ARRAY(
        SELECT w FROM json_populate_recordset(NULL::{schema}.commits, replacing::json) AS w);
    replaced bigint[] := ARRAY(SELECT (w).number FROM unnest(whole) AS w);
    based bigint;
    count bigint;
BEGIN
    SELECT * INTO run FROM {schema}.runs WHERE run_id = job->>'run_id' AND latest >= 0 FOR UPDATE;
    IF NOT FOUND THEN
        RETURN '0';
    END IF;
    IF run.latest = ANY (going) THEN
        RETURN jsonb_build_object('newest', run.latest);
    END IF;
    SELECT c.number INTO based
    FROM unnest(going) AS g (number)
    JOIN {schema}.commits AS c ON c.run_id = run.run_id AND c.number = g.number
    JOIN {schema}.commits AS next ON next.run_id = run.run_id AND next.number = g.number + 1
    WHERE NOT next.frame AND next.number <> ALL (going) AND next.number <> ALL (replaced) LIMIT 1;
    IF FOUND THEN
        RETURN jsonb_build_object('based', based);
    END IF;
    PERFORM FROM unnest(whole) AS w
    JOIN {schema}.commits AS c ON c.run_id = run.run_id AND c.number = (w).number
    WHERE (w).workflow <> run.workflow AND (w).number <> ALL (going);
    IF FOUND THEN
        RETURN {schema}.standing(run.run_id);
    END IF;
    UPDATE {schema}.commits AS c SET
        checkpoint_id = (w).checkpoint_id, status = (w).status, iteration = (w).iteration, at = (w).at,
        frame = (w).frame, outputs = (w).outputs, fleeting = (w).fleeting, body = (w).body
    FROM unnest(whole) AS w WHERE c.run_id = run.run_id AND c.number = (w).number;
    UPDATE {schema}.runs AS r SET status = (w).status
    FROM unnest(whole) AS w WHERE r.run_id = run.run_id AND r.latest = (w).number AND r.status <> (w).status;
    DELETE FROM {schema}.commits WHERE run_id = run.run_id AND number = ANY (going);
    GET DIAGNOSTICS count = ROW_COUNT;
    RETURN to_jsonb(CASE WHEN job ? 'again' THEN cardinality(going) ELSE count END);
END $stepwell$;

CREATE FUNCTION {schema}.drop(job jsonb) RETURNS jsonb LANGUAGE plpgsql AS $stepwell$
DECLARE
    run text := job->>'run_id';
BEGIN
    PERFORM FROM {schema}.runs WHERE run_id = run AND latest >= 0 FOR UPDATE;
    IF NOT FOUND THEN
        RETURN to_jsonb(job ? 'again');
    END IF;
    DELETE FROM {schema}.commits WHERE run_id = run;
    PERFORM {schema}.forget(run);
    DELETE FROM {schema}.runs WHERE run_id = run;
    RETURN 'true';
END $stepwell$;

-- Deletes everything that belongs to a run besides its records.
CREATE FUNCTION {schema}.forget(run text) RETURNS void LANGUAGE plpgsql AS $stepwell$
BEGIN
    DELETE FROM {schema}.memory WHERE run_id = run;
    DELETE FROM {schema}.mail WHERE run_id = run;
    DELETE FROM {schema}.requests WHERE run_id = run;
    DELETE FROM {schema}.tags WHERE run_id = run;
END $stepwell$;

-- Returns the state of a run, which says why a write was refused.
CREATE FUNCTION {schema}.standing(run text) RETURNS jsonb LANGUAGE plpgsql AS $stepwell$
DECLARE
    state {schema}.runs;
BEGIN
    SELECT * INTO state FROM {schema}.runs WHERE run_id = run;
    RETURN jsonb_build_object('latest', coalesce(state.latest, -1), 'workflow', state.workflow, 'fence', state.fence);
END $stepwell$;

-- Returns whether it was stored, or 'fenced' if another process has acquired the run.
CREATE FUNCTION {schema}.remember(job jsonb, new_body text) RETURNS jsonb LANGUAGE plpgsql AS $stepwell$
DECLARE
    wanted {schema}.memory := jsonb_populate_record(NULL::{schema}.memory, job);
    claimed bigint;
BEGIN
    IF job ? 'fence' THEN  -- locked, so that nobody acquires the run before this commits
        SELECT fence INTO claimed FROM {schema}.runs WHERE run_id = wanted.run_id FOR NO KEY UPDATE;
    END IF;
    IF claimed > (job->>'fence')::bigint THEN
        PERFORM FROM {schema}.memory
        WHERE job ? 'again' AND run_id = wanted.run_id AND place = wanted.place AND key = wanted.key
            AND body = new_body;
        RETURN CASE WHEN FOUND THEN 'true' ELSE '"fenced"' END;
    END IF;
    INSERT INTO {schema}.memory (run_id, place, key, body) VALUES (wanted.run_id, wanted.place, wanted.key, new_body)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND AND job ? 'again' THEN
        PERFORM FROM {schema}.memory
        WHERE run_id = wanted.run_id AND place = wanted.place AND key = wanted.key AND body = new_body;
    END IF;
    RETURN to_jsonb(FOUND);
END $stepwell$;

-- Stores the result of a step at the end of the step's own transaction, or makes that transaction fail.
CREATE FUNCTION {schema}.finish(job jsonb, new_body text) RETURNS jsonb LANGUAGE plpgsql AS $stepwell$
DECLARE
    kept jsonb;
BEGIN
    IF current_setting('stepwell.step', true) IS DISTINCT FROM job->>'step' THEN
        RAISE EXCEPTION 'this is not the transaction that was started for the step' USING ERRCODE = 'HF003';
    END IF;
    kept := {schema}.remember(job, new_body);
    IF kept = '"fenced"' THEN
        RAISE EXCEPTION 'another process has acquired the run' USING ERRCODE = 'HF001';
    ELSIF kept = 'false' THEN
        RAISE EXCEPTION 'the step was done before' USING ERRCODE = 'HF002';
    END IF;
    RETURN kept;
END $stepwell$;

CREATE FUNCTION {schema}.post(job jsonb, new_body text) RETURNS jsonb LANGUAGE plpgsql AS $stepwell$
DECLARE
    wanted {schema}.mail := jsonb_populate_record(NULL::{schema}.mail, job);
BEGIN
    INSERT INTO {schema}.mail (run_id, key, consumed, posting, body)
    VALUES (wanted.run_id, wanted.key, false, wanted.posting, new_body) ON CONFLICT DO NOTHING;
    IF NOT FOUND AND job ? 'again' THEN
        PERFORM FROM {schema}.mail
        WHERE run_id = wanted.run_id AND key = wanted.key AND posting = wanted.posting;
    END IF;
    RETURN to_jsonb(FOUND);
END $stepwell$;

-- Returns the fence of the lease; or who holds the run and for how many seconds; or null if the run was released just
-- now. `ahead` is by how many seconds the clock of a test is ahead; `dead` is an owner whose process is gone.
CREATE FUNCTION {schema}.claim(job jsonb) RETURNS jsonb LANGUAGE plpgsql AS $stepwell$
DECLARE
    moment timestamptz := clock_timestamp() + make_interval(secs => (job->>'ahead')::float8);
    ends timestamptz := moment + make_interval(secs => (job->>'seconds')::float8);
    new_fence bigint;
    holder jsonb;
BEGIN
    INSERT INTO {schema}.runs AS held (run_id, latest, owner, until) VALUES (job->>'run_id', -1, job->'owner', ends)
    -- DEFAULT takes the next number of the sequence, which is higher than every fence before.
    ON CONFLICT (run_id) DO UPDATE SET fence = DEFAULT, owner = excluded.owner, until = excluded.until
    WHERE held.until IS NULL OR held.until < moment OR held.owner IN (job->'owner', job->'dead')
    RETURNING fence INTO new_fence;
    IF FOUND THEN
        RETURN to_jsonb(new_fence);
    END IF;
    SELECT r.owner || jsonb_build_object('left', extract(epoch FROM r.until - moment)) INTO holder
    FROM {schema}.runs AS r WHERE r.run_id = job->>'run_id';
    RETURN coalesce(holder, 'null');
END $stepwell$;

-- Returns the runs that another process has acquired since.
CREATE FUNCTION {schema}.renew(job jsonb) RETURNS jsonb LANGUAGE plpgsql AS $stepwell$
DECLARE
    lost jsonb;
BEGIN
    UPDATE {schema}.runs AS r
    SET until = clock_timestamp() + make_interval(secs => (job->>'ahead')::float8 + (job->>'seconds')::float8)
    FROM jsonb_each_text(job->'fences') AS f (run_id, fence)
    WHERE r.run_id = f.run_id AND r.fence = f.fence::bigint AND r.until IS NOT NULL;
    SELECT jsonb_agg(r.run_id) INTO lost
    FROM {schema}.runs AS r JOIN jsonb_each_text(job->'fences') AS f (run_id, fence) ON r.run_id = f.run_id
    WHERE r.fence > f.fence::bigint;
    RETURN coalesce(lost, '[]');
END $stepwell$;

CREATE FUNCTION {schema}.release(job jsonb) RETURNS jsonb LANGUAGE plpgsql AS $stepwell$
DECLARE
    number bigint;
BEGIN
    UPDATE {schema}.runs SET owner = NULL, until = NULL WHERE run_id = job->>'run_id' AND owner = job->'owner'
    RETURNING latest INTO number;
    IF number = -1 THEN
        DELETE FROM {schema}.runs WHERE run_id = job->>'run_id' AND latest = -1;
    END IF;
    RETURN 'true';
END $stepwell$;
"""
