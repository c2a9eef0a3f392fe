-- Tells of grants.
-- $1 channel, $2 what to tell: text[].
-- Returns nothing of interest.
SELECT pg_notify(t.channel, t.note) FROM unnest($1::text[], $2::text[]) AS t (channel, note)
