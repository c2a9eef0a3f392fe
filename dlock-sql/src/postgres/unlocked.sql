-- Finds rows that can be written at once. Waits for nobody, and locks nothing beyond the statement.
-- $1: text[] of names.
-- Returns the names, in no order, of the rows that no other transaction keeps locked.
SELECT d.name FROM dlock_lock AS d
WHERE d.name OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.text[])
FOR NO KEY UPDATE SKIP LOCKED
