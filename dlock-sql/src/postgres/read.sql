-- Reads the rows of some locks.
-- $1: text[] of names. $2: bigint[], for each the `base` whose snap the caller has, or 0.
-- Returns one row per name, in no order: its index in $1, the time (microseconds since 1970), null on
-- a server that takes no writes, and base, snap (empty if known), log, which are null for a lock
-- that has no row.
SELECT
  n.at OPERATOR(pg_catalog.-) 1,
  CASE WHEN pg_catalog.current_setting('transaction_read_only') OPERATOR(pg_catalog.=) 'off'
       THEN (extract(epoch FROM pg_catalog.statement_timestamp()) OPERATOR(pg_catalog.*) 1000000)::bigint END,
  d.base, CASE WHEN d.base OPERATOR(pg_catalog.=) n.known THEN '' ELSE d.snap END, d.log
FROM ROWS FROM (
  pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::bigint[])
) WITH ORDINALITY AS n (name, known, at)
LEFT JOIN dlock_lock AS d ON d.name OPERATOR(pg_catalog.=) n.name
