-- Reads the next page of rows, to find those that nobody uses.
-- ? 1 and ? 2: how old a row must be, in microseconds   ? 3: the name after which to begin, or an
-- empty one   ? 4: how many rows
-- ? 5: how many rows to skip before them
-- Returns them by name: name, the time (microseconds since 1970), base, snap, log; the last two
-- are null for a row whose snapshot is younger than that, which can't have been idle for long. Rows
-- whose name is not UTF-8 are nobody's lock, and left out. The way by UTF-16 finds halves of its
-- characters, which MariaDB takes for UTF-8.
SELECT
  d.name, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), d.base,
  IF(d.base <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - ?, d.snap, NULL),
  IF(d.base <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) - ?, d.log, NULL)
FROM dlock_lock AS d
WHERE d.name > ? AND CAST(CONVERT(
    CONVERT(CONVERT(d.name USING utf8mb4) USING utf16) USING utf8mb4) AS BINARY) = d.name
ORDER BY d.name
LIMIT ? OFFSET ?
