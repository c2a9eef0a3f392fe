-- Deletes rows that are still as the caller has read them.
-- ? 1: JSON array of [name, base, how many bytes the log has], by name, the name in hexadecimal
-- digits. Rows are locked in its order, and no others: hence the join and the index.
-- Returns nothing.
-- With sql_safe_updates the server refuses a join with a list, however few rows it finds. MariaDB reads
-- the first of the two comments that switch it off for this statement, MySQL the second.
/*M! SET STATEMENT sql_safe_updates = 0 FOR */
DELETE /*+ SET_VAR(sql_safe_updates = 0) */ d
FROM
  JSON_TABLE(?, '$[*]' COLUMNS (
    name VARCHAR(1024) PATH '$[0]', base BIGINT PATH '$[1]', len BIGINT PATH '$[2]'
  )) AS w
  STRAIGHT_JOIN dlock_lock AS d FORCE INDEX (PRIMARY) ON d.name = UNHEX(w.name)
WHERE d.base = w.base AND LENGTH(d.log) = w.len
