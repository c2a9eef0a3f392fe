-- Takes the session's lock on a key, and then the next token of its name.
-- $1 key: bigint    $2 name: text
-- $3 deadline: bigint, microseconds since 1970. Past it nothing is taken.
-- Returns one row: the time (microseconds since 1970), and the token, null if somebody else has the key
-- or it is too late.
-- Nobody waits until the disk has the token. A crash that loses it ends all sessions and their locks,
-- and by then the clock is past it.
WITH clock AS MATERIALIZED (
  SELECT (extract(epoch FROM pg_catalog.statement_timestamp()) OPERATOR(pg_catalog.*) 1000000)::bigint AS now
), got AS MATERIALIZED (
  SELECT CASE WHEN now OPERATOR(pg_catalog.<=) $3::bigint
              THEN pg_catalog.pg_try_advisory_lock($1::bigint) ELSE false END AS it, now
  FROM clock
), taken AS (
  INSERT INTO dlock_advisory AS a (name, token)
  SELECT $2::pg_catalog.text, now
  FROM got
  WHERE got.it AND pg_catalog.set_config('synchronous_commit', 'off', true) IS NOT NULL
  ON CONFLICT (name) DO UPDATE SET
    token = greatest(a.token OPERATOR(pg_catalog.+) 1, excluded.token)
  RETURNING token
)
SELECT clock.now, (SELECT token FROM taken) FROM clock
