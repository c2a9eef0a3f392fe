-- Lists the roles that may add triggers or foreign keys to dlock's table, whose code would then run with
-- the rights of all users that write to it.
-- $1: text, the name of the table, with its schema.
-- Returns a row for each role, without the owner, superusers and the user's own roles:
--   0 the role, null for PUBLIC
-- To a superuser each role seems to be its own.
SELECT r.rolname::pg_catalog.text
FROM pg_catalog.pg_class AS c
CROSS JOIN LATERAL pg_catalog.aclexplode(c.relacl) AS a
JOIN pg_catalog.pg_roles AS me ON me.rolname OPERATOR(pg_catalog.=) current_user
LEFT JOIN pg_catalog.pg_roles AS r ON r.oid OPERATOR(pg_catalog.=) a.grantee
WHERE c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass($1::pg_catalog.text)::pg_catalog.oid
  AND a.privilege_type OPERATOR(pg_catalog.=) ANY (ARRAY['TRIGGER', 'REFERENCES']::pg_catalog.text[])
  AND a.grantee OPERATOR(pg_catalog.<>) c.relowner
  AND (r.oid IS NULL OR NOT r.rolsuper
    AND (me.rolsuper OR NOT pg_catalog.pg_has_role(r.oid, 'MEMBER')))
GROUP BY 1
ORDER BY 1
