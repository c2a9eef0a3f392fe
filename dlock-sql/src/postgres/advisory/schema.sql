-- The table of the advisory mode (dlock.advisory) on PostgreSQL: the last fencing token of each lock.
-- Run once per database, by `dlock.create_schema=true` with `dlock.advisory=true`, or by hand:
-- psql -1 -f schema.sql
-- Takes no arguments and returns nothing. Running it again changes nothing.
-- Who uses it needs SELECT, INSERT, UPDATE and DELETE on it.

SELECT pg_catalog.pg_advisory_xact_lock(5506123690123455334);

CREATE TABLE IF NOT EXISTS dlock_advisory (
  name  pg_catalog.text NOT NULL COLLATE pg_catalog."C" PRIMARY KEY,
  token bigint          NOT NULL  -- at least the microseconds since 1970 at which it was given out
) WITH (fillfactor = 50);
