-- Reads the next page of rows, to find those that nobody uses.
-- ?1: the name after which to begin, or an empty text; its bytes if it is not UTF-8
-- ?2: how old a row must be, in microseconds   ?3: how many rows to skip
-- ?4: how many rows
-- Returns them by name: name, the time (microseconds since 1970), base, snap, log; the last two
-- are null for a row whose snapshot is younger than that, which can't have been idle for long.
SELECT
  d.name, clock.now, d.base,
  CASE WHEN d.base <= clock.now - ?2 THEN d.snap END,
  CASE WHEN d.base <= clock.now - ?2 THEN d.log END
FROM
  (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 AS now) AS clock,
  dlock_lock AS d
WHERE d.name > CASE typeof(?1) WHEN 'blob' THEN CAST(?1 AS TEXT) ELSE ?1 END
ORDER BY d.name
LIMIT ?4 OFFSET ?3
