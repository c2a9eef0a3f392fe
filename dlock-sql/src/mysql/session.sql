-- Sets a new connection up, whatever the server's defaults and its init_connect are. The server is not
-- to close it soon for being idle.
-- {seconds}: how long the server lets a statement wait for a row or a table.
-- {limit}: how long, in seconds with fractions, a statement may take on MariaDB; MySQL reads that
-- line as a comment, and limits only SELECT.
-- Returns one row: how many bytes a statement may have on this connection.
SET
  /*M! max_statement_time = {limit}, */
  autocommit = 1,
  timestamp = DEFAULT,
  sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION',
  sql_safe_updates = 0,
  sql_select_limit = 18446744073709551615,
  wait_timeout = GREATEST(@@wait_timeout, 28800),
  innodb_lock_wait_timeout = {seconds},
  lock_wait_timeout = {seconds};
SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ WRITE;
SELECT CAST(@@max_allowed_packet AS SIGNED)
