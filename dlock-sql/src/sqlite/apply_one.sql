-- Appends operations to the row of a lock, and folds what the caller has replayed.
-- ?1 name: text       ?2 seen: the `base` that ?4 was made from, or 0
-- ?3 cut: how many characters of the log ?4 contains    ?4 snap: text
-- ?5 op: text, without its time    ?6 known: the `base` whose snap the caller has, or 0
-- ?7 time: that of the last operation that ?4 contains. A log of the same base with another one there
-- is not the log that the caller has seen: somebody has put an older file in its place.
-- Returns the row: base, snap (empty if known), log. Times: microseconds since 1970, in steps of 1000.
-- A row that is not there begins empty, whatever the caller remembers of an earlier one. A row of
-- an unknown format, or one that was cut off, stays unchanged.
INSERT INTO dlock_lock AS d (name, base, seen, cut, snap, log)
VALUES (
  ?1,
  CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000,
  CASE WHEN ?2 = 0 THEN 0 ELSE coalesce((
    SELECT e.base FROM dlock_lock AS e
    WHERE e.name = ?1 AND e.base = ?2 AND substr(e.log, 1, ?3) LIKE '% ' || ?7 || ';'
  ), 0) END,
  ?3, '',
  ?5 || ' ' || (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000) || ';'
)
ON CONFLICT (name) DO UPDATE SET
  base = CASE WHEN d.base = excluded.seen THEN max(d.base + 1, excluded.base) ELSE d.base END,
  snap = CASE WHEN d.base = excluded.seen THEN ?4 ELSE d.snap END,
  log  = CASE WHEN d.base = excluded.seen THEN substr(d.log, excluded.cut + 1) ELSE d.log END
         || CASE
              WHEN substr(d.snap, 1, 3) IN ('', 'v1 ') AND substr(d.snap, -1) IN ('', ';')
                AND substr(d.log, -1) IN ('', ';')
              THEN excluded.log ELSE ''
            END
RETURNING base, CASE WHEN base = ?6 THEN '' ELSE snap END, log
