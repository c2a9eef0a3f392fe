-- Takes the session's lock on a key, and then the next token of its name.
-- $1 key: bigint    $2 name: text
-- Returns the token, or no row if somebody else has the key.
-- Nobody waits until the disk has the token. A crash that loses it ends all sessions and their locks,
-- and by then the clock is past it.
WITH got AS MATERIALIZED (SELECT pg_try_advisory_lock($1::bigint) AS it)
INSERT INTO dlock_advisory AS a (name, token)
SELECT $2::text, (extract(epoch FROM statement_timestamp()) * 1000000)::bigint
FROM got
WHERE got.it AND set_config('synchronous_commit', 'off', true) IS NOT NULL
ON CONFLICT (name) DO UPDATE SET token = greatest(a.token + 1, excluded.token)
RETURNING token
