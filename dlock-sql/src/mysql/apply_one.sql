-- Appends operations to the row of a lock, and folds what the caller has replayed.
-- ? 1 name   ? 2 seen: the `base` that ? 8 was made from, or 0
-- ? 3 cut: how many bytes of the log ? 8 contains, and times 2^24 a number that no other sending has;
-- 0 without a fold   ? 4 op, without its time
-- ? 5 to ? 7 and ? 9 time: that of the last operation that ? 8 contains. A log of the same base with
-- another one there is not the log that the caller has seen: a crash, or another server, has lost that.
-- ? 8 snap
-- Returns nothing, or with returning_one.sql behind it the row.
-- Times: microseconds since 1970. UTC_TIMESTAMP stands still within a statement.
-- A row that is not there begins empty, whatever the caller remembers of an earlier one. A row of
-- an unknown format, or one that was cut off, stays unchanged.
-- Servers assign one after the other, and with SIMULTANEOUS_ASSIGNMENT in sql_mode all at once. So
-- `cut` becomes the argument if there is something to fold, and else its negative. Where it is neither,
-- the row is still as it was, and is asked again.
INSERT INTO dlock_lock (name, base, seen, cut, snap, log)
VALUES (
  ?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), ?, ?, '',
  CONCAT(?, ' ', TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), ';')
)
ON DUPLICATE KEY UPDATE
  cut  = IF(
    base = VALUES(seen) AND LEFT(log, MOD(VALUES(cut), 16777216)) LIKE CONCAT('% ', ?, ';'),
    VALUES(cut), -VALUES(cut)
  ),
  log  = CONCAT(
    IF(
      IF(
        ABS(cut) = VALUES(cut), cut > 0,
        base = VALUES(seen) AND LEFT(log, MOD(VALUES(cut), 16777216)) LIKE CONCAT('% ', ?, ';')
      ),
      SUBSTRING(log, MOD(VALUES(cut), 16777216) + 1), log
    ),
    IF(
      LEFT(snap, 3) IN ('', 'v1 ') AND RIGHT(snap, 1) IN ('', ';') AND RIGHT(log, 1) IN ('', ';'),
      VALUES(log), ''
    )
  ),
  snap = IF(
    IF(
      ABS(cut) = VALUES(cut), cut > 0,
      base = VALUES(seen) AND LEFT(log, MOD(VALUES(cut), 16777216)) LIKE CONCAT('% ', ?, ';')
    ),
    ?, snap
  ),
  base = IF(
    IF(
      ABS(cut) = VALUES(cut), cut > 0,
      base = VALUES(seen) AND LEFT(log, MOD(VALUES(cut), 16777216)) LIKE CONCAT('% ', ?, ';')
    ),
    GREATEST(base + 1, VALUES(base)), base
  )
