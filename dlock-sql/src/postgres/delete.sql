-- Deletes rows that are still as the caller has read them, and that nobody writes just now.
-- $1 name: text[]; $2 base, $3 how many characters the log has: bigint[].
-- Returns nothing.
DELETE FROM dlock_lock AS d
USING (
  SELECT l.name
  FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS w (name, base, length)
  JOIN dlock_lock AS l ON l.name = w.name
  WHERE l.base = w.base AND length(l.log) = w.length
  FOR UPDATE OF l SKIP LOCKED
) AS idle
WHERE d.name = idle.name
