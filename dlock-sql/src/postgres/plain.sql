-- The table of the plain mode (dlock.plain) on PostgreSQL. Run once per database, by
-- `dlock.create_schema=true` with `dlock.plain`, or by hand: psql -1 -f plain.sql
-- Takes no arguments and returns nothing. Running it again changes nothing.
-- Who uses it needs SELECT, INSERT, UPDATE and DELETE on it.

SELECT pg_catalog.pg_advisory_xact_lock(5506123690123455334);

CREATE TABLE IF NOT EXISTS dlock_plain (
  name    pg_catalog.text NOT NULL COLLATE pg_catalog."C" PRIMARY KEY,
  holder  pg_catalog.text NOT NULL,  -- what the holder calls itself: of dlock, 32 hexadecimal digits
  state   pg_catalog.text NOT NULL,  -- 'held', or 'free'
  version bigint          NOT NULL,  -- one more with each grant
  expiry  bigint          NOT NULL   -- when the lease ends: microseconds since 1970 by this server's clock
) WITH (fillfactor = 50);
