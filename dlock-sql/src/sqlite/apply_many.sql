-- Appends operations to each of several rows, all or none, at one time of the clock.
-- ?1: JSON array of [name, seen, cut, snap, op, time], as in apply_one.sql, with distinct names.
-- Returns the rows in no order: name, base, snap, log.
INSERT INTO dlock_lock AS d (name, base, seen, cut, snap, log)
SELECT
  w.value ->> 0, clock.now,
  CASE
    WHEN e.base = w.value ->> 1 AND substr(e.log, 1, w.value ->> 2) LIKE '% ' || (w.value ->> 5) || ';'
    THEN e.base ELSE 0
  END,
  w.value ->> 2,
  CASE WHEN e.name IS NULL THEN '' ELSE w.value ->> 3 END,
  (w.value ->> 4) || ' ' || clock.now || ';'
FROM
  (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000 AS now) AS clock,
  json_each(?1) AS w
  LEFT JOIN dlock_lock AS e ON e.name = w.value ->> 0
WHERE true
ON CONFLICT (name) DO UPDATE SET
  base = CASE WHEN d.base = excluded.seen THEN max(d.base + 1, excluded.base) ELSE d.base END,
  snap = CASE WHEN d.base = excluded.seen THEN excluded.snap ELSE d.snap END,
  log  = CASE WHEN d.base = excluded.seen THEN substr(d.log, excluded.cut + 1) ELSE d.log END
         || CASE
              WHEN substr(d.snap, 1, 3) IN ('', 'v1 ') AND substr(d.snap, -1) IN ('', ';')
                AND substr(d.log, -1) IN ('', ';')
              THEN excluded.log ELSE ''
            END
RETURNING name, base, snap, log
