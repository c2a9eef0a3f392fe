-- The tables of dlock on SQLite (3.37 or later). Run once per file, by
-- `dlock.create_schema=true` or by hand: sqlite3 locks.db < schema.sql
-- Takes no arguments and returns nothing. Running it again changes nothing.

PRAGMA journal_mode = WAL;

BEGIN IMMEDIATE;

-- Which version of these tables this is, in its only row.
CREATE TABLE IF NOT EXISTS dlock_schema (
  id      INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
  version INTEGER NOT NULL
) STRICT;

INSERT INTO dlock_schema (id, version) VALUES (1, 1) ON CONFLICT (id) DO NOTHING;

-- One row per lock that is held or waited for, or was of late.
CREATE TABLE IF NOT EXISTS dlock_lock (
  name TEXT    NOT NULL COLLATE BINARY PRIMARY KEY,  -- compared byte for byte
  base INTEGER NOT NULL,  -- identifies `snap`: grows with each one, starts at the clock's microseconds
  seen INTEGER NOT NULL,  -- carries an argument into the upsert; means nothing at rest
  cut  INTEGER NOT NULL,  -- likewise
  snap TEXT    NOT NULL,  -- the state at `base`, empty for a lock that never was
  log  TEXT    NOT NULL   -- the operations since, each with the time at which it came
) STRICT, WITHOUT ROWID;

COMMIT;
