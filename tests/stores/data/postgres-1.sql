
CREATE TABLE {schema}.runs (
    run_id   text COLLATE "C" PRIMARY KEY,
    workflow text COLLATE "C" NOT NULL,
    latest   bigint NOT NULL,                                   -- the highest number of the run
    wake     text COLLATE "C"                                   -- when it wants to be woken
) WITH (fillfactor = 60);                                       -- room for the next version of a row beside it
CREATE INDEX runs_to_wake ON {schema}.runs (wake, run_id) WHERE wake IS NOT NULL;

CREATE TABLE {schema}.commits (
    seq           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,  -- the order of commits over all runs
    run_id        text COLLATE "C" NOT NULL,
    number        bigint NOT NULL,
    checkpoint_id text COLLATE "C" NOT NULL,
    workflow      text COLLATE "C" NOT NULL,
    status        text NOT NULL,
    iteration     bigint NOT NULL,
    at            text NOT NULL,
    frame         boolean NOT NULL,
    outputs       boolean NOT NULL,
    body          text NOT NULL,                                -- not jsonb: what was written comes back as it was
    UNIQUE (run_id, number)
);
CREATE INDEX commits_by_checkpoint ON {schema}.commits (checkpoint_id, seq);
CREATE INDEX commits_by_workflow ON {schema}.commits (workflow, seq);
CREATE INDEX commits_with_outputs ON {schema}.commits (run_id, number) WHERE outputs;

CREATE TABLE {schema}.memory (
    run_id text COLLATE "C" NOT NULL,
    place  bigint NOT NULL,
    key    text COLLATE "C" NOT NULL,
    body   text NOT NULL,
    PRIMARY KEY (run_id, place, key)
);

CREATE TABLE {schema}.mail (
    seq      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,   -- the order of posting
    run_id   text COLLATE "C" NOT NULL,
    key      text COLLATE "C" NOT NULL,
    consumed boolean NOT NULL,                                  -- then it stays, so that the key is taken for ever
    posting  text,                                              -- tells the call that posted it from any other
    body     text NOT NULL,
    UNIQUE (run_id, key)
);
CREATE INDEX mail_to_read ON {schema}.mail (run_id, seq) WHERE NOT consumed;

CREATE TABLE {schema}.requests (
    seq           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,  -- the order of asking
    run_id        text COLLATE "C" NOT NULL,
    request_id    text COLLATE "C" NOT NULL,
    workflow      text COLLATE "C" NOT NULL,
    executor      text NOT NULL,
    request_type  text NOT NULL,
    response_type text NOT NULL,
    schema        text NOT NULL,
    at            text COLLATE "C" NOT NULL,
    deadline      text,
    UNIQUE (run_id, request_id)
);
CREATE INDEX requests_by_age ON {schema}.requests (at, run_id, seq);
CREATE INDEX requests_by_workflow ON {schema}.requests (workflow, at, run_id, seq);

CREATE TABLE {schema}.leases (
    run_id  text COLLATE "C" PRIMARY KEY,
    host    text NOT NULL,
    machine text NOT NULL,
    pid     bigint NOT NULL,
    started text NOT NULL,
    drive   text NOT NULL,
    until   timestamptz NOT NULL                                -- by the clock of the database
);

CREATE TABLE {schema}.holdfast (format integer NOT NULL);       -- one row: how many steps the schema has gone
INSERT INTO {schema}.holdfast VALUES (0);

CREATE FUNCTION {schema}.work(jobs jsonb, sheets text[]) RETURNS jsonb[] LANGUAGE plpgsql
    SET enable_seqscan = off SET plan_cache_mode = force_generic_plan  -- plans outlive the time when a table was small
AS $holdfast$
DECLARE
    job jsonb;
    said jsonb;
    answers jsonb[] := '{}';
    n integer := 0;
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN  -- what is told as stored must outlive the server
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    FOR job IN SELECT jsonb_array_elements(jobs) LOOP
        n := n + 1;
        CASE job->>'do'
            WHEN 'append' THEN said := {schema}.append(job, sheets[n]);
            WHEN 'remember' THEN said := {schema}.remember(job, sheets[n]);
            WHEN 'post' THEN said := {schema}.post(job, sheets[n]);
            WHEN 'claim' THEN said := {schema}.claim(job);
            WHEN 'renew' THEN said := {schema}.renew(job);
            WHEN 'release' THEN said := {schema}.release(job);
            WHEN 'put' THEN said := {schema}.put(job, sheets[n]);
            WHEN 'remove' THEN said := {schema}.remove(job, sheets[n]);
        END CASE;
        answers[n] := said;
    END LOOP;
    RETURN answers;
END $holdfast$;

CREATE FUNCTION {schema}.append(job jsonb, sheet text) RETURNS jsonb LANGUAGE plpgsql AS $holdfast$
DECLARE
    entry {schema}.commits := jsonb_populate_record(NULL::{schema}.commits, job);
BEGIN
    IF entry.number = 0 THEN
        INSERT INTO {schema}.runs (run_id, workflow, latest, wake)
        VALUES (entry.run_id, entry.workflow, 0, job->>'wake') ON CONFLICT DO NOTHING;
    ELSE
        UPDATE {schema}.runs SET latest = entry.number, wake = job->>'wake'
        WHERE run_id = entry.run_id AND latest = entry.number - 1 AND workflow = entry.workflow;
    END IF;
    IF NOT FOUND THEN
        PERFORM FROM {schema}.commits AS c
        WHERE job ? 'again' AND c.run_id = entry.run_id AND c.number = entry.number
            AND c.checkpoint_id = entry.checkpoint_id AND c.at = entry.at AND c.body = sheet;
        RETURN CASE WHEN FOUND THEN 'true' ELSE {schema}.standing(entry.run_id) END;
    END IF;
    PERFORM {schema}.keep(entry, sheet);
    PERFORM {schema}.settle(entry.run_id, job);
    IF job ? 'closed' THEN
        DELETE FROM {schema}.requests
        WHERE run_id = entry.run_id AND request_id IN (SELECT jsonb_array_elements_text(job->'closed'));
    END IF;
    PERFORM {schema}.ask(job);
    RETURN 'true';
END $holdfast$;

CREATE FUNCTION {schema}.put(job jsonb, sheet text) RETURNS jsonb LANGUAGE plpgsql AS $holdfast$
DECLARE
    entry {schema}.commits := jsonb_populate_record(NULL::{schema}.commits, job);
    run {schema}.runs;
BEGIN
    INSERT INTO {schema}.runs AS r (run_id, workflow, latest) VALUES (entry.run_id, entry.workflow, -1)
    ON CONFLICT (run_id) DO UPDATE SET latest = r.latest  -- changes nothing, and nobody else does until we are done
    RETURNING * INTO run;
    IF run.workflow <> entry.workflow THEN
        RETURN {schema}.standing(entry.run_id);
    END IF;
    DELETE FROM {schema}.commits WHERE run_id = entry.run_id AND number = entry.number;
    PERFORM {schema}.keep(entry, sheet);
    PERFORM {schema}.settle(entry.run_id, job);
    IF entry.number >= run.latest THEN
        UPDATE {schema}.runs SET latest = entry.number, wake = job->>'wake' WHERE run_id = entry.run_id;
        DELETE FROM {schema}.requests WHERE run_id = entry.run_id;
        PERFORM {schema}.ask(job);
    END IF;
    RETURN 'true';
END $holdfast$;

-- What is in the job is the follower, if there is a sheet; `gone` is the number of the record that goes.
CREATE FUNCTION {schema}.remove(job jsonb, sheet text) RETURNS jsonb LANGUAGE plpgsql AS $holdfast$
DECLARE
    follower {schema}.commits := jsonb_populate_record(NULL::{schema}.commits, job);
    gone bigint := job->>'gone';
    run {schema}.runs;
    next {schema}.commits;
    last bigint;
BEGIN
    SELECT * INTO run FROM {schema}.runs WHERE run_id = follower.run_id FOR UPDATE;
    PERFORM FROM {schema}.commits WHERE run_id = follower.run_id AND number = gone;
    IF NOT FOUND THEN
        RETURN to_jsonb(job ? 'again');
    END IF;
    SELECT * INTO next FROM {schema}.commits WHERE run_id = follower.run_id AND number = gone + 1;
    IF FOUND AND sheet IS NULL AND NOT next.frame THEN
        RETURN '"based"';
    ELSIF FOUND AND sheet IS NOT NULL THEN
        IF follower.workflow <> run.workflow THEN
            RETURN {schema}.standing(follower.run_id);
        END IF;
        UPDATE {schema}.commits SET
            checkpoint_id = follower.checkpoint_id, status = follower.status, iteration = follower.iteration,
            at = follower.at, frame = follower.frame, outputs = follower.outputs, body = sheet
        WHERE run_id = follower.run_id AND number = gone + 1;
    END IF;
    DELETE FROM {schema}.commits WHERE run_id = follower.run_id AND number = gone;
    SELECT max(number) INTO last FROM {schema}.commits WHERE run_id = follower.run_id;
    DELETE FROM {schema}.memory WHERE run_id = follower.run_id AND place > coalesce(last, -1);
    IF last IS NULL THEN
        DELETE FROM {schema}.runs WHERE run_id = follower.run_id;
        DELETE FROM {schema}.mail WHERE run_id = follower.run_id;
        DELETE FROM {schema}.requests WHERE run_id = follower.run_id;
    ELSIF last < gone THEN
        UPDATE {schema}.runs SET latest = last, wake = NULL WHERE run_id = follower.run_id;
        DELETE FROM {schema}.requests WHERE run_id = follower.run_id;
        PERFORM {schema}.ask(job);
    END IF;
    RETURN 'true';
END $holdfast$;

CREATE FUNCTION {schema}.keep(entry {schema}.commits, sheet text) RETURNS void LANGUAGE plpgsql AS $holdfast$
BEGIN
    INSERT INTO {schema}.commits
        (run_id, number, checkpoint_id, workflow, status, iteration, at, frame, outputs, body)
    VALUES (entry.run_id, entry.number, entry.checkpoint_id, entry.workflow, entry.status, entry.iteration, entry.at,
            entry.frame, entry.outputs, sheet);
END $holdfast$;

-- Forgets the memory and consumes the mail that led to a record.
CREATE FUNCTION {schema}.settle(run text, job jsonb) RETURNS void LANGUAGE plpgsql AS $holdfast$
BEGIN
    IF job ? 'settled' THEN
        DELETE FROM {schema}.memory WHERE run_id = run AND place <= (job->>'settled')::bigint;
    END IF;
    IF job ? 'consumed' THEN
        INSERT INTO {schema}.mail (run_id, key, consumed, body)
        SELECT run, jsonb_array_elements_text(job->'consumed'), true, 'null'
        ON CONFLICT (run_id, key) DO UPDATE SET consumed = true;
    END IF;
END $holdfast$;

CREATE FUNCTION {schema}.ask(job jsonb) RETURNS void LANGUAGE plpgsql AS $holdfast$
BEGIN
    IF job ? 'asked' THEN
        INSERT INTO {schema}.requests
            (run_id, request_id, workflow, executor, request_type, response_type, schema, at, deadline)
        SELECT q.run_id, q.request_id, q.workflow, q.executor, q.request_type, q.response_type, q.schema, q.at,
            q.deadline
        FROM jsonb_populate_recordset(NULL::{schema}.requests, job->'asked') AS q;
    END IF;
END $holdfast$;

-- Where a run stands: why something was refused.
CREATE FUNCTION {schema}.standing(run text) RETURNS jsonb LANGUAGE plpgsql AS $holdfast$
DECLARE
    found {schema}.runs;
BEGIN
    SELECT * INTO found FROM {schema}.runs WHERE run_id = run;
    RETURN jsonb_build_object('latest', coalesce(found.latest, -1), 'workflow', found.workflow);
END $holdfast$;

CREATE FUNCTION {schema}.remember(job jsonb, sheet text) RETURNS jsonb LANGUAGE plpgsql AS $holdfast$
DECLARE
    wanted {schema}.memory := jsonb_populate_record(NULL::{schema}.memory, job);
BEGIN
    INSERT INTO {schema}.memory (run_id, place, key, body) VALUES (wanted.run_id, wanted.place, wanted.key, sheet)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND AND job ? 'again' THEN
        PERFORM FROM {schema}.memory
        WHERE run_id = wanted.run_id AND place = wanted.place AND key = wanted.key AND body = sheet;
    END IF;
    RETURN to_jsonb(FOUND);
END $holdfast$;

CREATE FUNCTION {schema}.post(job jsonb, sheet text) RETURNS jsonb LANGUAGE plpgsql AS $holdfast$
DECLARE
    wanted {schema}.mail := jsonb_populate_record(NULL::{schema}.mail, job);
BEGIN
    INSERT INTO {schema}.mail (run_id, key, consumed, posting, body)
    VALUES (wanted.run_id, wanted.key, false, wanted.posting, sheet) ON CONFLICT DO NOTHING;
    IF NOT FOUND AND job ? 'again' THEN
        PERFORM FROM {schema}.mail
        WHERE run_id = wanted.run_id AND key = wanted.key AND posting = wanted.posting;
    END IF;
    RETURN to_jsonb(FOUND);
END $holdfast$;

-- Says true, or who holds the run and for how many seconds, or null if that one let go just now.
-- `ahead` is by how many seconds the clock of a test is ahead; `dead` is an owner who is known to be gone.
CREATE FUNCTION {schema}.claim(job jsonb) RETURNS jsonb LANGUAGE plpgsql AS $holdfast$
DECLARE
    wanted {schema}.leases := jsonb_populate_record(NULL::{schema}.leases, job);
    dead {schema}.leases := jsonb_populate_record(NULL::{schema}.leases, job->'dead');
    moment timestamptz := clock_timestamp() + make_interval(secs => (job->>'ahead')::float8);
    ends timestamptz := moment + make_interval(secs => (job->>'seconds')::float8);
    holder jsonb;
BEGIN
    INSERT INTO {schema}.leases AS held (run_id, host, machine, pid, started, drive, until)
    VALUES (wanted.run_id, wanted.host, wanted.machine, wanted.pid, wanted.started, wanted.drive, ends)
    ON CONFLICT (run_id) DO UPDATE SET
        host = excluded.host, machine = excluded.machine, pid = excluded.pid, started = excluded.started,
        drive = excluded.drive, until = excluded.until
    WHERE held.until < moment OR (held.host, held.machine, held.pid, held.started, held.drive) IN (
        (wanted.host, wanted.machine, wanted.pid, wanted.started, wanted.drive),
        (dead.host, dead.machine, dead.pid, dead.started, dead.drive));
    IF FOUND THEN
        RETURN 'true';
    END IF;
    SELECT jsonb_build_object('host', l.host, 'machine', l.machine, 'pid', l.pid, 'started', l.started,
                              'drive', l.drive, 'left', extract(epoch FROM l.until - moment))
    INTO holder FROM {schema}.leases AS l WHERE l.run_id = wanted.run_id;
    RETURN coalesce(holder, 'null');
END $holdfast$;

CREATE FUNCTION {schema}.renew(job jsonb) RETURNS jsonb LANGUAGE plpgsql AS $holdfast$
DECLARE
    wanted {schema}.leases := jsonb_populate_record(NULL::{schema}.leases, job);
BEGIN
    UPDATE {schema}.leases AS held
    SET until = clock_timestamp() + make_interval(secs => (job->>'ahead')::float8 + (job->>'seconds')::float8)
    WHERE held.run_id IN (SELECT jsonb_array_elements_text(job->'run_ids'))
        AND (held.host, held.machine, held.pid, held.started, held.drive)
            = (wanted.host, wanted.machine, wanted.pid, wanted.started, wanted.drive);
    RETURN 'true';
END $holdfast$;

CREATE FUNCTION {schema}.release(job jsonb) RETURNS jsonb LANGUAGE plpgsql AS $holdfast$
DECLARE
    wanted {schema}.leases := jsonb_populate_record(NULL::{schema}.leases, job);
BEGIN
    DELETE FROM {schema}.leases AS held
    WHERE held.run_id = wanted.run_id AND (held.host, held.machine, held.pid, held.started, held.drive)
        = (wanted.host, wanted.machine, wanted.pid, wanted.started, wanted.drive);
    RETURN 'true';
END $holdfast$;

UPDATE {schema}.holdfast SET format = 1;
INSERT INTO {schema}.runs (run_id, workflow, latest, wake) OVERRIDING SYSTEM VALUE VALUES ('Other Run', 'Other Workflow', 0, NULL);
INSERT INTO {schema}.runs (run_id, workflow, latest, wake) OVERRIDING SYSTEM VALUE VALUES ('r', 'w', 1, '2026-02-01');
INSERT INTO {schema}.runs (run_id, workflow, latest, wake) OVERRIDING SYSTEM VALUE VALUES ('a0b', 'a0b', 0, NULL);
INSERT INTO {schema}.commits (seq, run_id, number, checkpoint_id, workflow, status, iteration, at, frame, outputs, body) OVERRIDING SYSTEM VALUE VALUES (1, 'r', 0, 'r-0', 'w', 'running', 0, '2026-01-01T00:00:00+00:00', true, false, '{"state": 0}');
INSERT INTO {schema}.commits (seq, run_id, number, checkpoint_id, workflow, status, iteration, at, frame, outputs, body) OVERRIDING SYSTEM VALUE VALUES (2, 'Other Run', 0, 'Other Run-0', 'Other Workflow', 'running', 0, '2026-01-02T00:00:00+00:00', true, true, '{"n": 0}');
INSERT INTO {schema}.commits (seq, run_id, number, checkpoint_id, workflow, status, iteration, at, frame, outputs, body) OVERRIDING SYSTEM VALUE VALUES (3, 'r', 1, 'second', 'w', 'waiting', 1, '2026-01-03T00:00:00+00:00', false, true, '{"changed": 1}');
INSERT INTO {schema}.commits (seq, run_id, number, checkpoint_id, workflow, status, iteration, at, frame, outputs, body) OVERRIDING SYSTEM VALUE VALUES (4, 'a0b', 0, 'a0b-0', 'a0b', 'running', 0, '2026-01-01T00:00:00+00:00', true, false, '{"n": 0}');
SELECT setval(pg_get_serial_sequence('{schema}.commits', 'seq'), coalesce((SELECT max(seq) FROM {schema}.commits), 0) + 1, false);
INSERT INTO {schema}.memory (run_id, place, key, body) OVERRIDING SYSTEM VALUE VALUES ('r', 2, 'k', '{"done":true}');
INSERT INTO {schema}.memory (run_id, place, key, body) OVERRIDING SYSTEM VALUE VALUES ('new', 0, 'k', '1');
INSERT INTO {schema}.mail (seq, run_id, key, consumed, posting, body) OVERRIDING SYSTEM VALUE VALUES (1, 'r', 'used', true, '3aa758d8f7544766be0c215288892a60', '0');
INSERT INTO {schema}.mail (seq, run_id, key, consumed, posting, body) OVERRIDING SYSTEM VALUE VALUES (3, 'r', 'k', false, '0a06467d44774379bd147bee51a4f225', '{"answer":true}');
SELECT setval(pg_get_serial_sequence('{schema}.mail', 'seq'), coalesce((SELECT max(seq) FROM {schema}.mail), 0) + 1, false);
INSERT INTO {schema}.requests (seq, run_id, request_id, workflow, executor, request_type, response_type, schema, at, deadline) OVERRIDING SYSTEM VALUE VALUES (1, 'r', 'q', 'w', 'approver', 'Invoice', 'bool', '{"type":"boolean"}', '2026-01-01T00:00:00+00:00', NULL);
SELECT setval(pg_get_serial_sequence('{schema}.requests', 'seq'), coalesce((SELECT max(seq) FROM {schema}.requests), 0) + 1, false);
INSERT INTO {schema}.leases (run_id, host, machine, pid, started, drive, until) OVERRIDING SYSTEM VALUE VALUES ('r', 'host', 'machine', 1, '0', 'drive', '2126-10-23 06:09:24.534418+00:00'::timestamptz);
INSERT INTO {schema}.leases (run_id, host, machine, pid, started, drive, until) OVERRIDING SYSTEM VALUE VALUES ('new', 'host', 'machine', 1, '0', 'drive', '2026-11-16 06:09:24.535977+00:00'::timestamptz);
