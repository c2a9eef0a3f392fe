-- Tells whether a statement of this user has waited for a synchronous standby for so long.
-- $1: microseconds
-- Returns one row with one boolean.
SELECT EXISTS (
  SELECT FROM pg_stat_activity AS a
  WHERE a.usename = current_user AND a.wait_event = 'SyncRep'
    AND a.query_start < clock_timestamp() - $1::bigint * interval '1 microsecond'
)
