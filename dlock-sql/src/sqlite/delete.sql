-- Deletes rows that are still as the caller has read them.
-- ?1: JSON array of [name, base, how many characters the log has].
-- Returns nothing.
DELETE FROM dlock_lock
WHERE (name, base, length(log)) IN (
  SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1)
)
