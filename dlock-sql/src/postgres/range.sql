-- Reads the first rows of a range of names.
-- $1: the first name of the range   $2: the first name behind it   $3: how many rows
-- Returns them by name: name, the time (microseconds since 1970), null on a server that takes no
-- writes, base, snap, log.
SELECT
  d.name,
  CASE WHEN pg_catalog.current_setting('transaction_read_only') OPERATOR(pg_catalog.=) 'off'
       THEN (extract(epoch FROM pg_catalog.statement_timestamp()) OPERATOR(pg_catalog.*) 1000000)::bigint END,
  d.base, d.snap, d.log
FROM dlock_lock AS d
WHERE d.name OPERATOR(pg_catalog.>=) $1::pg_catalog.text
  AND d.name OPERATOR(pg_catalog.<) $2::pg_catalog.text
ORDER BY d.name
LIMIT $3::bigint
