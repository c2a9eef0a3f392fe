-- Lists the roles that may create tables in front of dlock's: in the schema of its table, and in those
-- of the search path of a new session, which this statement sets for itself.
-- $1: text, the name of the table, with its schema.
-- Returns a row for each schema and role, without owners, superusers and the user's own roles:
--   0 the schema   1 the role, null for PUBLIC
-- To a superuser each role seems to be its own.
SELECT n.nspname::pg_catalog.text, r.rolname::pg_catalog.text
FROM (
  SELECT pg_catalog.set_config('search_path', s.reset_val, true) AS path
  FROM pg_catalog.pg_settings AS s
  WHERE s.name OPERATOR(pg_catalog.=) 'search_path'
) AS p
CROSS JOIN LATERAL (
  SELECT o.oid, o.nspname, o.nspowner, o.nspacl
  FROM pg_catalog.pg_namespace AS o
  WHERE o.nspname OPERATOR(pg_catalog.=) ANY (pg_catalog.current_schemas(p.path IS NULL))
    OR o.oid OPERATOR(pg_catalog.=) (
      SELECT c.relnamespace FROM pg_catalog.pg_class AS c
      WHERE c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1::pg_catalog.text)::pg_catalog.oid
    )
) AS n
CROSS JOIN LATERAL pg_catalog.aclexplode(
  coalesce(n.nspacl, pg_catalog.acldefault('n', n.nspowner))
) AS a
JOIN pg_catalog.pg_roles AS me ON me.rolname OPERATOR(pg_catalog.=) current_user
LEFT JOIN pg_catalog.pg_roles AS r ON r.oid OPERATOR(pg_catalog.=) a.grantee
WHERE a.privilege_type OPERATOR(pg_catalog.=) 'CREATE'
  AND a.grantee OPERATOR(pg_catalog.<>) n.nspowner
  AND (r.oid IS NULL OR NOT r.rolsuper
    AND (me.rolsuper OR NOT pg_catalog.pg_has_role(r.oid, 'MEMBER')))
ORDER BY 1, 2
