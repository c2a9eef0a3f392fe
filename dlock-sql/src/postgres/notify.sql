-- Tells of grants. A note is a hint, so nobody has to wait until the disk has its commit.
-- $1 channel, $2 what to tell: text[].
-- Returns nothing of interest.
SELECT
  pg_catalog.set_config('synchronous_commit', 'off', true),
  pg_catalog.pg_notify(t.channel, t.note)
FROM ROWS FROM (
  pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.text[])
) AS t (channel, note)
