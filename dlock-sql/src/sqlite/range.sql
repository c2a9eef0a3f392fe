-- Reads the first rows of a range of names.
-- ?1: the first name of the range; its bytes if it is not UTF-8   ?2: the first name behind it
-- ?3: how many rows
-- Returns them by name: name, the time (microseconds since 1970), base, snap, log.
SELECT
  d.name,
  CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000,
  d.base, d.snap, d.log
FROM dlock_lock AS d
WHERE d.name >= CASE typeof(?1) WHEN 'blob' THEN CAST(?1 AS TEXT) ELSE ?1 END AND d.name < ?2
ORDER BY d.name
LIMIT ?3
