-- Asked of an application's connection before each use.
-- Takes no arguments. Returns one row with one number: 0 if a statement does there what it says, or
-- else which of the settings stands in its way, in the order below.
-- The second statement makes sure of how the next one is isolated and that it may write, and is refused
-- within a transaction (error 1568).
-- SYSDATE is the time whatever the session's `timestamp`, which all other functions go by. A limit
-- hides settings of the server, which SHOW tells; statements on rows have a limit of their own.
SELECT CAST(CASE
  WHEN @@autocommit <> 1 THEN 1
  WHEN @@sql_mode NOT REGEXP 'STRICT_(ALL|TRANS)_TABLES' THEN 1
  WHEN @@sql_mode REGEXP 'EMPTY_STRING_IS_NULL' THEN 2
  WHEN @@character_set_connection REGEXP '^(ucs2|utf16|utf32)' THEN 3
  WHEN ABS(TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6))) > 500000 THEN 4
  WHEN @@sql_select_limit < 100 THEN 5
  ELSE 0
END AS SIGNED) AS found
LIMIT 1;
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ WRITE
