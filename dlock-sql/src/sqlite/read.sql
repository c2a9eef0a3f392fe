-- Reads the rows of some locks.
-- ?1: JSON array of names.
-- Returns one row per name, in no order: its index in ?1, the time (microseconds since 1970),
-- and base, snap, log, which are null for a lock that has no row.
SELECT
  n.key,
  CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000,
  d.base, d.snap, d.log
FROM json_each(?1) AS n LEFT JOIN dlock_lock AS d ON d.name = n.value
