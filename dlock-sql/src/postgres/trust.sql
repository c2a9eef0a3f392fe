-- Looks for a reason not to use tables that somebody else has made: what belongs to them would run
-- with the rights of this user, on each write. A role is trusted if the user may act as it, or it as
-- the user, if it owns the database, or if it may do anything anyway.
-- $1: text[], the tables with their schemas. Their partitions are looked at, too.
-- Returns at most one row:
--   0 the table   1 the reason: owner, schema, kind, type or function
--   2 the owner of the table or of its schema, the type, or the function
WITH t AS MATERIALIZED (
  SELECT c.oid, c.relname, c.relkind, c.relpersistence, c.relhasrules, c.relowner, c.relnamespace
  FROM pg_catalog.unnest($1::pg_catalog.text[]) AS n (name)
  CROSS JOIN LATERAL (
    SELECT pg_catalog.to_regclass(n.name)::pg_catalog.oid
    UNION ALL
    SELECT p.relid::pg_catalog.oid
    FROM pg_catalog.pg_partition_tree(pg_catalog.to_regclass(n.name)) AS p
    WHERE p.level OPERATOR(pg_catalog.>) 0
  ) AS l (id)
  JOIN pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) l.id
), trusted AS MATERIALIZED (
  SELECT r.oid
  FROM pg_catalog.pg_roles AS r
  JOIN pg_catalog.pg_roles AS me ON me.rolname OPERATOR(pg_catalog.=) current_user
  JOIN pg_catalog.pg_database AS b
    ON b.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()
  -- To a superuser each role seems to be its own.
  WHERE r.oid OPERATOR(pg_catalog.=) me.oid OR r.rolsuper OR r.oid OPERATOR(pg_catalog.=) b.datdba
    OR r.rolname OPERATOR(pg_catalog.=) 'pg_database_owner'
    OR pg_catalog.pg_has_role(r.oid, me.oid, 'MEMBER')
    OR NOT me.rolsuper AND pg_catalog.pg_has_role(r.oid, 'MEMBER')
), used AS MATERIALIZED (
  -- Functions of triggers, policies, defaults, generated columns, constraints and indexes.
  SELECT t.relname, e.refclassid, e.refobjid
  FROM t
  JOIN pg_catalog.pg_depend AS d ON d.refobjid OPERATOR(pg_catalog.=) t.oid
    AND d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid
    AND d.classid OPERATOR(pg_catalog.<>) 'pg_catalog.pg_rewrite'::pg_catalog.regclass::pg_catalog.oid
    AND d.classid OPERATOR(pg_catalog.<>) 'pg_catalog.pg_proc'::pg_catalog.regclass::pg_catalog.oid
  JOIN pg_catalog.pg_depend AS e ON e.classid OPERATOR(pg_catalog.=) d.classid
    AND e.objid OPERATOR(pg_catalog.=) d.objid
)
SELECT t.relname::pg_catalog.text, 'owner', r.rolname::pg_catalog.text
FROM t JOIN pg_catalog.pg_roles AS r ON r.oid OPERATOR(pg_catalog.=) t.relowner
WHERE NOT EXISTS (SELECT FROM trusted AS u WHERE u.oid OPERATOR(pg_catalog.=) t.relowner)
UNION ALL
-- The owner of a schema can put another table in the place of this one at any time.
SELECT t.relname::pg_catalog.text, 'schema', r.rolname::pg_catalog.text
FROM t
JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) t.relnamespace
JOIN pg_catalog.pg_roles AS r ON r.oid OPERATOR(pg_catalog.=) n.nspowner
WHERE NOT EXISTS (SELECT FROM trusted AS u WHERE u.oid OPERATOR(pg_catalog.=) n.nspowner)
UNION ALL
SELECT t.relname::pg_catalog.text, 'kind', ''
FROM t
WHERE t.relkind OPERATOR(pg_catalog.<>) ALL (ARRAY['r', 'p']::pg_catalog."char"[])
  OR t.relpersistence OPERATOR(pg_catalog.=) 't' OR t.relhasrules
  OR t.relkind OPERATOR(pg_catalog.=) 'r' AND EXISTS (
    SELECT FROM pg_catalog.pg_inherits AS i WHERE i.inhparent OPERATOR(pg_catalog.=) t.oid)
  -- A delete would go on in the referring table, and run its triggers.
  OR EXISTS (
    SELECT FROM pg_catalog.pg_constraint AS k WHERE k.confrelid OPERATOR(pg_catalog.=) t.oid)
UNION ALL
-- A domain checks each value.
SELECT t.relname::pg_catalog.text, 'type', y.typname::pg_catalog.text
FROM t
JOIN pg_catalog.pg_attribute AS a ON a.attrelid OPERATOR(pg_catalog.=) t.oid AND NOT a.attisdropped
JOIN pg_catalog.pg_type AS y ON y.oid OPERATOR(pg_catalog.=) a.atttypid
WHERE NOT EXISTS (SELECT FROM trusted AS u WHERE u.oid OPERATOR(pg_catalog.=) y.typowner)
UNION ALL
SELECT v.relname::pg_catalog.text, 'function', p.proname::pg_catalog.text
FROM used AS v
JOIN pg_catalog.pg_proc AS p ON p.oid OPERATOR(pg_catalog.=) v.refobjid
  AND v.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_proc'::pg_catalog.regclass::pg_catalog.oid
WHERE NOT EXISTS (SELECT FROM trusted AS u WHERE u.oid OPERATOR(pg_catalog.=) p.proowner)
UNION ALL
SELECT v.relname::pg_catalog.text, 'function', o.oprname::pg_catalog.text
FROM used AS v
JOIN pg_catalog.pg_operator AS o ON o.oid OPERATOR(pg_catalog.=) v.refobjid
  AND v.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_operator'::pg_catalog.regclass::pg_catalog.oid
WHERE NOT EXISTS (SELECT FROM trusted AS u WHERE u.oid OPERATOR(pg_catalog.=) o.oprowner)
LIMIT 1
