-- Tells what server this is, and whether it is fit. Reads no table of dlock's, so it needs no rights.
-- Takes no arguments. Returns one row:
--   0 version: integer as text, such as 150002    1 encoding: text
--   2 standby, 3 read-only: boolean
SELECT
  current_setting('server_version_num'),
  current_setting('server_encoding'),
  pg_is_in_recovery(),
  current_setting('transaction_read_only') = 'on'
