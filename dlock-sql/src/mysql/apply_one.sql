-- Appends operations to the row of a lock, and folds what the caller has replayed.
-- ? 1 name   ? 2 seen: the `base` that ? 5 was made from, or 0
-- ? 3 cut: how many bytes of the log ? 5 contains   ? 4 op, without its time   ? 5 snap
-- Returns nothing, or with returning_one.sql behind it the row.
-- Times: microseconds since 1970. UTC_TIMESTAMP stands still within a statement.
-- A row that is not there begins empty, whatever the caller remembers of an earlier one.
-- Assignments are made one after the other, so `base` comes last.
INSERT INTO dlock_lock (name, base, seen, cut, snap, log)
VALUES (
  ?, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), ?, ?, '',
  CONCAT(?, ' ', TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), ';')
)
ON DUPLICATE KEY UPDATE
  log  = CONCAT(IF(base = VALUES(seen), SUBSTRING(log, VALUES(cut) + 1), log), VALUES(log)),
  snap = IF(base = VALUES(seen), ?, snap),
  base = IF(base = VALUES(seen), GREATEST(base + 1, VALUES(base)), base)
