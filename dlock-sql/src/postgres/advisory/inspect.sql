-- Tells who has the session lock on a key, and the last token of its name.
-- $1 key: bigint    $2 name: text
-- Returns one row: whether somebody has it, and the token, null if none is known.
SELECT
  EXISTS (
    SELECT FROM pg_catalog.pg_locks AS l
    WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted
      AND l.objsubid OPERATOR(pg_catalog.=) 1
      AND l.database OPERATOR(pg_catalog.=) (
        SELECT b.oid FROM pg_catalog.pg_database AS b
        WHERE b.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()
      )
      AND ((l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint)
        OPERATOR(pg_catalog.=) $1::bigint
  ),
  (SELECT a.token FROM dlock_advisory AS a WHERE a.name OPERATOR(pg_catalog.=) $2::pg_catalog.text)
