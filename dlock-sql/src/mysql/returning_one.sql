
-- Behind apply_one.sql, for servers that have it: name, base, snap (empty if known), log.
-- ? 10: known, the `base` whose snap the caller has, or 0
RETURNING name, base, IF(base = ?, '', snap), log
