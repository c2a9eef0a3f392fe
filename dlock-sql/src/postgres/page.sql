-- Reads the next page of rows, to find those that nobody uses.
-- $1: the name after which to begin, or an empty text   $2: how old a row must be, in microseconds
-- $3: how many rows   $4: how many rows to skip before them
-- Returns them by name: name, the time (microseconds since 1970), base, snap, log; the last two
-- are null for a row whose snapshot is younger than that, which can't have been idle for long.
SELECT
  d.name, clock.now, d.base,
  CASE WHEN d.base OPERATOR(pg_catalog.<=) (clock.now OPERATOR(pg_catalog.-) $2::bigint)
       THEN d.snap END,
  CASE WHEN d.base OPERATOR(pg_catalog.<=) (clock.now OPERATOR(pg_catalog.-) $2::bigint)
       THEN d.log END
FROM dlock_lock AS d
CROSS JOIN (SELECT (extract(epoch FROM pg_catalog.statement_timestamp()) OPERATOR(pg_catalog.*) 1000000)::bigint AS now) AS clock
WHERE d.name OPERATOR(pg_catalog.>) $1::pg_catalog.text
ORDER BY d.name
LIMIT $3::bigint OFFSET $4::bigint
