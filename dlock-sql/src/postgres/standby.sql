-- Tells whether a statement of this user has waited for a synchronous standby for so long.
-- $1: microseconds
-- Returns one row with one boolean.
SELECT EXISTS (
  SELECT FROM pg_catalog.pg_stat_activity AS a
  WHERE a.usename OPERATOR(pg_catalog.=) current_user
    AND a.wait_event OPERATOR(pg_catalog.=) 'SyncRep'
    AND a.query_start OPERATOR(pg_catalog.<) (pg_catalog.clock_timestamp()
      OPERATOR(pg_catalog.-) ($1::bigint OPERATOR(pg_catalog.*) '1 microsecond'::interval))
)
