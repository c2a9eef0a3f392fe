-- The tables of dlock on MariaDB (10.6 or later) and MySQL (8.0 or later). Run once per database,
-- by `dlock.create_schema=true` or by hand: mariadb locks < schema.sql
-- Takes no arguments and returns nothing. Running it again changes nothing.

-- One row per lock that is held or waited for, or was of late.
CREATE TABLE IF NOT EXISTS dlock_lock (
  name VARBINARY(512) NOT NULL PRIMARY KEY,  -- UTF-8, compared byte for byte
  base BIGINT     NOT NULL,  -- identifies `snap`: grows with each one, starts at the clock's microseconds
  seen BIGINT     NOT NULL,  -- carries an argument into the upsert; means nothing at rest
  cut  BIGINT     NOT NULL,  -- likewise
  snap MEDIUMBLOB NOT NULL,  -- the state at `base`, empty for a lock that never was
  log  MEDIUMBLOB NOT NULL   -- the operations since, each with the time at which it came
) ENGINE = InnoDB;

-- Which version of these tables this is, in its only row.
CREATE TABLE IF NOT EXISTS dlock_schema (
  id      INT    NOT NULL PRIMARY KEY,
  version BIGINT NOT NULL
) ENGINE = InnoDB;

INSERT IGNORE INTO dlock_schema (id, version) VALUES (1, 1);
