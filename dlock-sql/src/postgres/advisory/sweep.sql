-- Deletes the old tokens of a page of names, in the order of names, so that the statement is short on
-- a table of any size. Tokens grow without the row once the clock has passed the last token.
-- $1: the name after which the page begins, or an empty text   $2: how old a token must be, in
-- microseconds   $3: how many rows the page has   $4: how many rows to skip before them
-- Returns one row: the last name of the page, null if the page is the last one, how many rows it has,
-- and how many were deleted. A row whose token has changed meanwhile stays.
WITH page AS MATERIALIZED (
  SELECT a.name, a.token
  FROM dlock_advisory AS a
  WHERE a.name OPERATOR(pg_catalog.>) $1::pg_catalog.text
  ORDER BY a.name
  LIMIT $3::bigint OFFSET $4::bigint
), gone AS (
  DELETE FROM dlock_advisory AS d
  USING page AS p
  WHERE d.name OPERATOR(pg_catalog.=) p.name AND d.token OPERATOR(pg_catalog.=) p.token
    AND p.token OPERATOR(pg_catalog.<) (
      (extract(epoch FROM pg_catalog.statement_timestamp()) OPERATOR(pg_catalog.*) 1000000)::bigint
      OPERATOR(pg_catalog.-) $2::bigint)
  RETURNING 1
)
SELECT
  (SELECT CASE WHEN pg_catalog.count(*) OPERATOR(pg_catalog.=) $3::bigint
               THEN pg_catalog.max(p.name) END FROM page AS p),
  (SELECT pg_catalog.count(*) FROM page),
  (SELECT pg_catalog.count(*) FROM gone)
