-- The table of the plain mode (dlock.plain) on MariaDB and MySQL. Run once per database, by
-- `dlock.create_schema=true` with `dlock.plain`, or by hand: mariadb locks < plain.sql
-- Takes no arguments and returns nothing. Running it again changes nothing.
-- Who uses it needs SELECT, INSERT, UPDATE and DELETE on it.
CREATE TABLE IF NOT EXISTS dlock_plain (
  name    VARBINARY(512) NOT NULL PRIMARY KEY,  -- UTF-8, compared byte for byte
  holder  VARBINARY(255) NOT NULL,  -- what the holder calls itself: of dlock, 32 hexadecimal digits
  state   VARBINARY(16)  NOT NULL,  -- 'held', or 'free'
  version BIGINT         NOT NULL,  -- one more with each grant
  expiry  BIGINT         NOT NULL   -- when the lease ends: microseconds since 1970 by this server's clock
) ENGINE = InnoDB
