-- Asked of a new connection of dlock's own, which the server must not close for being idle: locks may
-- rest on it, and notes arrive there.
-- {statement}, {lock}: the limits that it was given, in milliseconds.
-- Returns one row: 0 whether it takes writes   1 whether it has the settings that it was given
--   2 whether what commits there outlives a crash of the server
SELECT
  current_setting('transaction_read_only') = 'off',
  current_setting('default_transaction_isolation') = 'read committed'
    AND current_setting('statement_timeout')::interval = '{statement} milliseconds'
    AND current_setting('lock_timeout')::interval = '{lock} milliseconds',
  {keeps},
  CASE WHEN current_setting('idle_session_timeout', true) <> '0'
       THEN set_config('idle_session_timeout', '0', false) END
