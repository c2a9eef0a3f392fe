-- Reads the row of a lock.
-- ? 1 known: the `base` whose snap the caller has, or 0   ? 2 name
-- Returns what read.sql returns, without taking a list of names apart.
SELECT
  CAST(1 AS SIGNED), IF(CONCAT(@@GLOBAL.read_only) IN ('0', 'OFF'),
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), NULL),
  d.base, IF(d.base = ?, '', d.snap), d.log
FROM (SELECT 1 AS one) AS n LEFT JOIN dlock_lock AS d ON d.name = ?
LIMIT 1
