-- Tells when autovacuum cleans a table.
-- $1: its name with its schema
-- Returns one row:
--   0 whether autovacuum is switched off for it: boolean
--   1 after how many old row versions it is cleaned   2 how many rows it has, 0 if not known: bigint
SELECT
  EXISTS (
    SELECT FROM pg_catalog.pg_options_to_table(c.reloptions) AS e
    WHERE e.option_name OPERATOR(pg_catalog.=) 'autovacuum_enabled' AND NOT e.option_value::boolean
  ),
  (coalesce(
    (SELECT t.option_value FROM pg_catalog.pg_options_to_table(c.reloptions) AS t
      WHERE t.option_name OPERATOR(pg_catalog.=) 'autovacuum_vacuum_threshold'),
    pg_catalog.current_setting('autovacuum_vacuum_threshold')
  )::pg_catalog.float8 OPERATOR(pg_catalog.+) (
    coalesce(
      (SELECT f.option_value FROM pg_catalog.pg_options_to_table(c.reloptions) AS f
        WHERE f.option_name OPERATOR(pg_catalog.=) 'autovacuum_vacuum_scale_factor'),
      pg_catalog.current_setting('autovacuum_vacuum_scale_factor')
    )::pg_catalog.float8
    OPERATOR(pg_catalog.*) greatest(c.reltuples, 0)::pg_catalog.float8
  ))::bigint,
  greatest(c.reltuples, 0)::bigint
FROM pg_catalog.pg_class AS c
WHERE c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1::pg_catalog.text)::pg_catalog.oid
