-- Tells of grants. A note is a hint, so nobody has to wait until the disk has its commit.
-- $1 channel, $2 what to tell: text[].
-- Returns nothing of interest.
SELECT set_config('synchronous_commit', 'off', true), pg_notify(t.channel, t.note)
FROM unnest($1::text[], $2::text[]) AS t (channel, note)
