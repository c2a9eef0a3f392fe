-- Appends operations to the row of a lock, and folds what the caller has replayed.
-- ?1 name: text       ?2 seen: the `base` that ?4 was made from, or 0
-- ?3 cut: how many characters of the log ?4 contains    ?4 snap: text
-- ?5 op: text, without its time    ?6 known: the `base` whose snap the caller has, or 0
-- Returns the row: base, snap (empty if known), log. Times: microseconds since 1970, in steps of 1000.
-- A row that is not there begins empty, whatever the caller remembers of an earlier one.
INSERT INTO dlock_lock AS d (name, base, seen, cut, snap, log)
VALUES (
  ?1,
  CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000,
  ?2, ?3, '',
  ?5 || ' ' || (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000) || ';'
)
ON CONFLICT (name) DO UPDATE SET
  base = CASE WHEN d.base = excluded.seen THEN max(d.base + 1, excluded.base) ELSE d.base END,
  snap = CASE WHEN d.base = excluded.seen THEN ?4 ELSE d.snap END,
  log  = CASE WHEN d.base = excluded.seen THEN substr(d.log, excluded.cut + 1) ELSE d.log END
         || excluded.log
RETURNING base, CASE WHEN base = ?6 THEN '' ELSE snap END, log
