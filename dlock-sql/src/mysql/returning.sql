
-- Behind apply_many.sql, for servers that have it: the rows, in no order.
RETURNING name, base, snap, log
