-- Tells who has the session lock on a key, and the last token of its name.
-- $1 key: bigint    $2 name: text
-- Returns one row: whether somebody has it, and the token, null if none is known.
SELECT
  EXISTS (
    SELECT 1 FROM pg_locks AS l
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND (l.classid::bigint << 32) | l.objid::bigint = $1::bigint
  ),
  (SELECT token FROM dlock_advisory WHERE name = $2::text)
