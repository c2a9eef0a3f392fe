-- Deletes rows that are still as the caller has read them, and that nobody writes just now.
-- $1 name: text[]; $2 base, $3 how many characters the log has: bigint[].
-- Returns nothing.
DELETE FROM dlock_lock AS d
USING (
  SELECT l.name
  FROM ROWS FROM (
    pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::bigint[]),
    pg_catalog.unnest($3::bigint[])
  ) AS w (name, base, length)
  JOIN dlock_lock AS l ON l.name OPERATOR(pg_catalog.=) w.name
  WHERE l.base OPERATOR(pg_catalog.=) w.base
    AND pg_catalog.length(l.log) OPERATOR(pg_catalog.=) w.length
  FOR UPDATE OF l SKIP LOCKED
) AS idle
WHERE d.name OPERATOR(pg_catalog.=) idle.name
