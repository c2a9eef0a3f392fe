-- Appends operations to the row of a lock, and folds what the caller has replayed.
-- ? 1 name   ? 2 seen: the `base` that ? 6 was made from, or 0
-- ? 3 cut: how many bytes of the log ? 6 contains   ? 4 op, without its time
-- ? 5 time: that of the last operation that ? 6 contains. A log of the same base with another one
-- there is not the log that the caller has seen: a crash, or another server, has lost that.
-- ? 6 snap
-- Returns nothing, or with returning_one.sql behind it the row.
-- Times: microseconds since 1970. UTC_TIMESTAMP stands still within a statement.
-- A row that is not there begins empty, whatever the caller remembers of an earlier one.
-- Assignments are made one after the other: `seen` becomes the base if there is something to fold.
INSERT INTO dlock_lock (name, base, seen, cut, snap, log)
VALUES (
  ?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), ?, ?, '',
  CONCAT(?, ' ', TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), ';')
)
ON DUPLICATE KEY UPDATE
  seen = IF(
    base = VALUES(seen) AND LEFT(log, VALUES(cut)) LIKE CONCAT('% ', ?, ';'), base, 0
  ),
  log  = CONCAT(IF(base = seen, SUBSTRING(log, VALUES(cut) + 1), log), VALUES(log)),
  snap = IF(base = seen, ?, snap),
  base = IF(base = seen, GREATEST(base + 1, VALUES(base)), base)
