-- Reads the first rows of a range of names.
-- ? 1: the first name of the range   ? 2: the first name behind it   ? 3: how many rows
-- Returns them by name: name, the time (microseconds since 1970), null on a server that takes no
-- writes, base, snap, log. Rows whose name is not UTF-8 are nobody's lock, and left out.
SELECT
  d.name, IF(CONCAT(@@GLOBAL.read_only) IN ('0', 'OFF'),
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), NULL), d.base, d.snap, d.log
FROM dlock_lock AS d
WHERE d.name >= ? AND d.name < ? AND CAST(CONVERT(
    CONVERT(CONVERT(d.name USING utf8mb4) USING utf16) USING utf8mb4) AS BINARY) = d.name
ORDER BY d.name
LIMIT ?
