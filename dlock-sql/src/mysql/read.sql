-- Reads the rows of some locks.
-- ? 1: JSON array of [name in hexadecimal digits, known], known being the `base` whose snap the
-- caller has, or 0.
-- Returns one row per name, in no order: its place in ? 1 from 1, the time (microseconds since
-- 1970), null on a server that takes no writes, and base, snap (empty if known), log, which are null
-- for a lock that has no row. All of them, whatever sql_select_limit is.
SELECT
  CAST(n.at AS SIGNED), IF(CONCAT(@@GLOBAL.read_only) IN ('0', 'OFF'),
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), NULL),
  d.base, IF(d.base = n.known, '', d.snap), d.log
FROM
  JSON_TABLE(? , '$[*]' COLUMNS (
    at FOR ORDINALITY, name VARCHAR(1024) PATH '$[0]', known BIGINT PATH '$[1]'
  )) AS n
  LEFT JOIN dlock_lock AS d ON d.name = UNHEX(n.name)
LIMIT 18446744073709551615
