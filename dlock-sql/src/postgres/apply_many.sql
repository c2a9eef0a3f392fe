-- Appends operations to each of several rows, all or none, at one time of the clock.
-- $1 name, $4 snap, $5 op: text[]; $2 seen, $3 cut, $6 time: bigint[]; as in apply_one.sql, with
-- distinct names. The rows are locked by name, so that those who write several can't wait in a circle.
-- Returns the rows in no order: name, base, snap, log.
INSERT INTO dlock_lock AS d (name, base, seen, cut, snap, log)
SELECT
  w.name, clock.now,
  CASE WHEN w.seen = 0 THEN 0 ELSE coalesce((
    SELECT e.base FROM dlock_lock AS e
    WHERE e.name = w.name AND e.base = w.seen
      AND left(e.log, w.cut::integer) LIKE '% ' || w.time || ';'
  ), 0) END,
  w.cut, '', w.op || ' ' || clock.now || ';'
FROM
  (SELECT (extract(epoch FROM statement_timestamp()) * 1000000)::bigint AS now) AS clock,
  unnest($1::text[], $2::bigint[], $3::bigint[], $5::text[], $6::bigint[])
    AS w (name, seen, cut, op, time)
ORDER BY w.name COLLATE "C"
ON CONFLICT (name) DO UPDATE SET
  base = CASE WHEN d.base = excluded.seen THEN greatest(d.base + 1, excluded.base) ELSE d.base END,
  snap = CASE WHEN d.base = excluded.seen THEN ($4::text[])[array_position($1::text[], d.name)]
              ELSE d.snap END,
  log  = CASE WHEN d.base = excluded.seen THEN substr(d.log, excluded.cut::integer + 1) ELSE d.log END
         || CASE
              WHEN left(d.snap, 3) IN ('', 'v1 ', 'v2 ') AND right(d.snap, 1) IN ('', ';')
                AND right(d.log, 1) IN ('', ';')
              THEN excluded.log ELSE ''
            END
RETURNING name, base, snap, log
