-- Finds rows that can be written at once. Waits for nobody, and locks nothing beyond the statement.
-- ? 1: JSON array of [name in hexadecimal digits, 0].
-- Returns the names, in no order, of the rows that no other transaction keeps locked.
SELECT d.name
FROM
  JSON_TABLE(? , '$[*]' COLUMNS (name VARCHAR(1024) PATH '$[0]')) AS n
  STRAIGHT_JOIN dlock_lock AS d ON d.name = UNHEX(n.name)
LIMIT 18446744073709551615
FOR UPDATE SKIP LOCKED
