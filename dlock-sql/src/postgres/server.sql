-- Tells what server this is, and whether it is fit. Reads no table of dlock's, so it needs no rights.
-- Takes no arguments. Returns one row:
--   0 version: integer as text, such as 150002    1 encoding: text
--   2 standby, 3 read-only: boolean
SELECT
  pg_catalog.current_setting('server_version_num'),
  pg_catalog.current_setting('server_encoding'),
  pg_catalog.pg_is_in_recovery(),
  pg_catalog.current_setting('transaction_read_only') OPERATOR(pg_catalog.=) 'on'
