-- Asked of a new connection of dlock's own, which the server must not close for being idle: locks may
-- rest on it, and notes arrive there.
-- {statement}, {lock}: the limits that it was given, in milliseconds.
-- Returns one row: 0 whether it takes writes   1 whether it has the settings that it was given
--   2 whether what commits there outlives a crash of the server
SELECT
  pg_catalog.current_setting('transaction_read_only') OPERATOR(pg_catalog.=) 'off',
  pg_catalog.current_setting('default_transaction_isolation') OPERATOR(pg_catalog.=) 'read committed'
    AND pg_catalog.current_setting('statement_timeout')::interval
      OPERATOR(pg_catalog.=) '{statement} milliseconds'::interval
    AND pg_catalog.current_setting('lock_timeout')::interval
      OPERATOR(pg_catalog.=) '{lock} milliseconds'::interval,
  {is_durable},
  CASE WHEN pg_catalog.current_setting('idle_session_timeout', true) OPERATOR(pg_catalog.<>) '0'
       THEN pg_catalog.set_config('idle_session_timeout', '0', false) END
