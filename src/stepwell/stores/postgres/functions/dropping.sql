-- Functions are dropped and created anew: CREATE OR REPLACE cannot change the arguments or the result of one.
DO $stepwell$
DECLARE
    old regprocedure;
BEGIN
    FOR old IN
        SELECT p.oid FROM {schema}.stepwell AS s JOIN pg_class AS c ON c.oid = s.tableoid
        JOIN pg_proc AS p ON p.pronamespace = c.relnamespace
    LOOP
        EXECUTE 'DROP FUNCTION ' || old::text;
    END LOOP;
END $stepwell$;
DROP TYPE IF EXISTS {schema}.part;
