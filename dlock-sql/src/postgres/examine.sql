-- Tells how the server is set up. Reads no table of dlock's, so it needs no rights.
-- Takes no arguments. Returns one row:
--   0 version, 1 fsync, 2 synchronous_commit, 3 full_page_writes, 4 autovacuum: text
--   5 standby: boolean   6 the time: microseconds since 1970
--   7 how many more connections an ordinary user can have   8 how many there are at most
--   9 after how many milliseconds an idle connection is closed; 0 for never
--   10 how many seconds the oldest transaction in this database has gone on, as far as can be seen
SELECT
  current_setting('server_version'), current_setting('fsync'),
  current_setting('synchronous_commit'), current_setting('full_page_writes'),
  current_setting('autovacuum'), pg_is_in_recovery(),
  (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
  (current_setting('max_connections')::bigint
    - current_setting('superuser_reserved_connections')::bigint
    - (SELECT count(*) FROM pg_stat_activity WHERE datid IS NOT NULL))::bigint,
  current_setting('max_connections')::bigint,
  coalesce((SELECT setting::bigint FROM pg_settings WHERE name = 'idle_session_timeout'), 0)::bigint,
  coalesce((SELECT extract(epoch FROM max(statement_timestamp() - xact_start))
    FROM pg_stat_activity WHERE datname = current_database()), 0)::bigint
