-- Reads the first rows of a range of names.
-- $1: the first name of the range   $2: the first name behind it   $3: how many rows
-- Returns them by name: name, the time (microseconds since 1970), null on a server that takes no
-- writes, base, snap, log.
SELECT
  d.name,
  CASE WHEN current_setting('transaction_read_only') = 'off'
       THEN (extract(epoch FROM statement_timestamp()) * 1000000)::bigint END,
  d.base, d.snap, d.log
FROM dlock_lock AS d
WHERE d.name >= $1::text AND d.name < $2::text
ORDER BY d.name
LIMIT $3::bigint
