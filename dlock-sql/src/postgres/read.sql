-- Reads the rows of some locks.
-- $1: text[] of names.
-- Returns one row per name, in no order: its index in $1, the time (microseconds since 1970),
-- and base, snap, log, which are null for a lock that has no row.
SELECT
  n.at - 1,
  (extract(epoch FROM statement_timestamp()) * 1000000)::bigint,
  d.base, d.snap, d.log
FROM unnest($1::text[]) WITH ORDINALITY AS n (name, at)
LEFT JOIN dlock_lock AS d ON d.name = n.name
