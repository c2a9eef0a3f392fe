-- Asked of an application's connection before each use.
-- {table}: dlock_lock with its database   {roles}: the roles of the sessions with which the store was
-- opened, in hexadecimal digits. Without them, their lines are left out. So is the line of Galera on
-- a server that is no node of such a cluster, which may lack the setting.
-- Returns two rows with two numbers each, of which the second is the time
-- (microseconds since 1970): a session with a `timestamp` of its own has the same in both. The first is
-- in the first row how many bytes a statement may have; and in the second one 0 if a statement does
-- there what it says, or else which of the settings stands in its way, in the order below.
-- Then follows how the table was created, since a temporary table of the session would hide it. A role
-- without a right to the table is refused (error 1142). A name that LOCK TABLES does not list is
-- refused (error 1100), and no statement lists this one.
-- The last statement makes sure of how the next one is isolated and that it may write, and is refused
-- within a transaction (error 1568).
-- A limit hides settings of the server, which SHOW tells; statements on rows have a limit of their own.
SELECT CAST(@@max_allowed_packet AS SIGNED),
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
LIMIT 1;
SELECT CAST(CASE
  WHEN @@autocommit <> 1 THEN 1
  WHEN @@sql_mode NOT REGEXP 'STRICT_(ALL|TRANS)_TABLES' THEN 1
  WHEN @@sql_mode REGEXP 'EMPTY_STRING_IS_NULL' THEN 2
  WHEN @@character_set_connection REGEXP '^(ucs2|utf16|utf32)' THEN 3
  WHEN @@sql_select_limit < 100 OR @@sql_big_selects = 0 AND @@max_join_size < 1000000 THEN 5
  WHEN @@log_bin = 1 AND (@@sql_log_bin = 0 /*M! OR @@skip_replication = 1 */) THEN 7
  WHEN CAST(COALESCE(CURRENT_ROLE(), '') AS BINARY) NOT IN ({roles}) THEN 8
  WHEN @@wsrep_on = 0 THEN 9
  ELSE 0
END AS SIGNED),
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))
LIMIT 1;
SHOW CREATE TABLE {table};
SELECT 1 FROM {table} AS dlock_not_locked LIMIT 0;
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ WRITE
