-- The tables of dlock on PostgreSQL (12 or later), in the first schema of the search path. Run once
-- per database, by `dlock.create_schema=true` or by hand: psql -1 -f schema.sql
-- Takes no arguments and returns nothing. Running it again changes nothing. It is meant for one
-- transaction, in which those who run it at the same time wait for each other.
-- Types, functions and operators name their schema, since another user may have made some of the same
-- name in a schema of the search path.
-- Who only uses the locks needs SELECT, INSERT, UPDATE and DELETE on dlock_lock, and SELECT on
-- dlock_schema.

SELECT pg_catalog.pg_advisory_xact_lock(5506123690123455334);

-- Which version of these tables this is, in its only row. Creating and filling it is one statement: if
-- another user has made this table, nothing is written to it, and none of its triggers runs.
CREATE TABLE IF NOT EXISTS dlock_schema (id, version) AS SELECT 1, 1::bigint;

-- One row per lock that is held or waited for, or was of late. Half of each page stays free, so that
-- a new version of a row has room beside the old one.
CREATE TABLE IF NOT EXISTS dlock_lock (
  name pg_catalog.text NOT NULL COLLATE pg_catalog."C" PRIMARY KEY,  -- compared byte for byte
  base bigint          NOT NULL,  -- identifies `snap`: grows with each, starts at the clock's microseconds
  seen bigint          NOT NULL,  -- carries an argument into the upsert; means nothing at rest
  cut  bigint          NOT NULL,  -- likewise
  snap pg_catalog.text NOT NULL,  -- the state at `base`, empty for a lock that never was
  log  pg_catalog.text NOT NULL   -- the operations since, each with the time at which it came
) WITH (fillfactor = 50);
