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
-- A row with a long snapshot does not fit its page. SQLite writes all pages of a row that changes its
-- size, and only the pages that differ of one that keeps it. So such a row has room for a log, which
-- `pad` takes while the log is short (a text of less than 58 bytes has a shorter header, too). The
-- snapshot is the last, so that the log is in the row's first pages.
CREATE TABLE IF NOT EXISTS dlock_lock (
  name TEXT    NOT NULL COLLATE BINARY PRIMARY KEY,  -- compared byte for byte
  base INTEGER NOT NULL,  -- identifies `snap`: grows with each one, starts at the clock's microseconds
  seen INTEGER NOT NULL,  -- carries an argument into the upsert; means nothing at rest
  cut  INTEGER NOT NULL,  -- likewise
  log  TEXT    NOT NULL,  -- the operations since, each with the time at which it came
  pad  BLOB    NOT NULL GENERATED ALWAYS AS (
    CASE WHEN length(CAST(snap AS BLOB)) < 1500 THEN x''
         ELSE zeroblob(max(1300 - length(log) + (length(log) < 58), 0)) END
  ) STORED,
  snap TEXT    NOT NULL   -- the state at `base`, empty for a lock that never was
) STRICT, WITHOUT ROWID;

COMMIT;
