-- Tells what the search path finds of dlock's tables. Reads neither, so it needs no rights.
-- Takes no arguments. Returns one row:
--   0 found: how many of the two are there
--   1 columns: the columns of dlock_lock by name, each with type and collation; null without it
--   2 lacking: the rights that the user does not have on them, null if none are lacking; without
--     any policy, row-level security denies everything
--   3 and 4 the schemas of dlock_lock and dlock_schema, quoted where they have to be; null without them
SELECT
  count(t.table_id),
  (SELECT string_agg(concat_ws(' ', a.attname, replace(format_type(a.atttypid, a.atttypmod), '"', ''),
                               c.collname), ', ' ORDER BY a.attname)
   FROM pg_attribute AS a LEFT JOIN pg_collation AS c ON c.oid = a.attcollation
   WHERE a.attrelid = to_regclass('dlock_lock') AND a.attnum > 0 AND NOT a.attisdropped),
  nullif(concat_ws(', ', (SELECT string_agg(r.need || ' on ' || r.name, ', ')
   FROM (VALUES (to_regclass('dlock_lock'), 'dlock_lock', 'SELECT'),
                (to_regclass('dlock_lock'), 'dlock_lock', 'INSERT'),
                (to_regclass('dlock_lock'), 'dlock_lock', 'UPDATE'),
                (to_regclass('dlock_lock'), 'dlock_lock', 'DELETE'),
                (to_regclass('dlock_schema'), 'dlock_schema', 'SELECT')) AS r (id, name, need)
   WHERE NOT has_table_privilege(r.id, r.need)),
  (SELECT string_agg('a policy of row-level security on ' || s.name, ', ')
   FROM (VALUES (to_regclass('dlock_lock'), 'dlock_lock'),
                (to_regclass('dlock_schema'), 'dlock_schema')) AS s (id, name)
   WHERE row_security_active(s.id)
     AND NOT EXISTS (SELECT FROM pg_policy WHERE polrelid = s.id AND polpermissive))), ''),
  (SELECT quote_ident(n.nspname) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
   WHERE c.oid = to_regclass('dlock_lock')),
  (SELECT quote_ident(n.nspname) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
   WHERE c.oid = to_regclass('dlock_schema'))
FROM (VALUES (to_regclass('dlock_lock')), (to_regclass('dlock_schema'))) AS t (table_id)
