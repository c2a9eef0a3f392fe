-- Reads the rows of some locks.
-- ?1: JSON array of [name, known], known being the `base` whose snap the caller has, or 0.
-- Returns one row per name, in no order: its index in ?1, the time (microseconds since 1970),
-- and base, snap (empty if known), log, which are null for a lock that has no row.
SELECT
  n.key,
  CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000,
  d.base, CASE WHEN d.base = n.value ->> 1 THEN '' ELSE d.snap END, d.log
FROM json_each(?1) AS n LEFT JOIN dlock_lock AS d ON d.name = n.value ->> 0
