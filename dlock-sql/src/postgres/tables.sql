-- Tells what the search path finds of dlock's tables. Reads neither, so it needs no rights.
-- Takes no arguments. Returns one row:
--   0 found: how many of the two are there
--   1 columns: the columns of dlock_lock by name, each with type and collation; null without it
--   2 lacking: the rights that the user does not have on them, null if none are lacking; without
--     any policy, row-level security denies everything
--   3 and 4 the schemas of dlock_lock and dlock_schema, quoted where they have to be; null without them
SELECT
  pg_catalog.count(t.table_id),
  (SELECT pg_catalog.string_agg(
     pg_catalog.concat_ws(' ', a.attname, t.typname, c.collname), ', ' ORDER BY a.attname)
   FROM pg_catalog.pg_attribute AS a
   -- Types and collations of other schemas have no name here.
   LEFT JOIN pg_catalog.pg_type AS t ON t.oid OPERATOR(pg_catalog.=) a.atttypid
     AND t.typnamespace
       OPERATOR(pg_catalog.=) 'pg_catalog'::pg_catalog.regnamespace::pg_catalog.oid
   LEFT JOIN pg_catalog.pg_collation AS c ON c.oid OPERATOR(pg_catalog.=) a.attcollation
     AND c.collnamespace
       OPERATOR(pg_catalog.=) 'pg_catalog'::pg_catalog.regnamespace::pg_catalog.oid
   WHERE a.attrelid OPERATOR(pg_catalog.=) pg_catalog.to_regclass('dlock_lock')::pg_catalog.oid
     AND a.attnum OPERATOR(pg_catalog.>) 0 AND NOT a.attisdropped),
  (SELECT pg_catalog.string_agg(l.what, ', ') FROM (
   SELECT pg_catalog.concat(r.need, ' on ', r.name)
   FROM (VALUES (pg_catalog.to_regclass('dlock_lock'), 'dlock_lock', 'SELECT'),
                (pg_catalog.to_regclass('dlock_lock'), 'dlock_lock', 'INSERT'),
                (pg_catalog.to_regclass('dlock_lock'), 'dlock_lock', 'UPDATE'),
                (pg_catalog.to_regclass('dlock_lock'), 'dlock_lock', 'DELETE'),
                (pg_catalog.to_regclass('dlock_schema'), 'dlock_schema', 'SELECT'))
     AS r (id, name, need)
   WHERE NOT pg_catalog.has_table_privilege(r.id::pg_catalog.oid, r.need)
   UNION ALL
   SELECT pg_catalog.concat('a policy of row-level security on ', s.name)
   FROM (VALUES (pg_catalog.to_regclass('dlock_lock'), 'dlock_lock'),
                (pg_catalog.to_regclass('dlock_schema'), 'dlock_schema')) AS s (id, name)
   WHERE pg_catalog.row_security_active(s.id::pg_catalog.oid)
     AND NOT EXISTS (SELECT FROM pg_catalog.pg_policy AS p
       WHERE p.polrelid OPERATOR(pg_catalog.=) s.id::pg_catalog.oid AND p.polpermissive)
  ) AS l (what)),
  (SELECT pg_catalog.quote_ident(n.nspname::pg_catalog.text) FROM pg_catalog.pg_class AS c
   JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
   WHERE c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass('dlock_lock')::pg_catalog.oid),
  (SELECT pg_catalog.quote_ident(n.nspname::pg_catalog.text) FROM pg_catalog.pg_class AS c
   JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
   WHERE c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass('dlock_schema')::pg_catalog.oid)
FROM (VALUES (pg_catalog.to_regclass('dlock_lock')), (pg_catalog.to_regclass('dlock_schema')))
  AS t (table_id)
