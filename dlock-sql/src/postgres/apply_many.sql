-- Appends operations to each of several rows, all or none, at one time of the clock.
-- $1 name, $4 snap, $5 op: text[]; $2 seen, $3 cut, $6 time: bigint[]; as in apply_one.sql, with
-- distinct names. The rows are locked by name, so that those who write several can't wait in a circle.
-- $7: text[] of the names of which the caller has a snap; its base $8 and its length in bytes $9: bigint[]
-- Returns the rows in no order: name, base, snap (empty if known), log.
INSERT INTO dlock_lock AS d (name, base, seen, cut, snap, log)
SELECT
  w.name, clock.now,
  CASE WHEN w.seen OPERATOR(pg_catalog.=) 0 THEN 0 ELSE coalesce((
    SELECT e.base FROM dlock_lock AS e
    WHERE e.name OPERATOR(pg_catalog.=) w.name AND e.base OPERATOR(pg_catalog.=) w.seen
      AND pg_catalog.left(e.log, w.cut::integer)
        OPERATOR(pg_catalog.~~) pg_catalog.concat('% ', w.time, ';')
  ), 0) END,
  w.cut, '', pg_catalog.concat(w.op, ' ', clock.now, ';')
FROM
  (SELECT (extract(epoch FROM pg_catalog.statement_timestamp()) OPERATOR(pg_catalog.*) 1000000)::bigint AS now) AS clock,
  ROWS FROM (
    pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::bigint[]),
    pg_catalog.unnest($3::bigint[]), pg_catalog.unnest($5::pg_catalog.text[]),
    pg_catalog.unnest($6::bigint[])
  ) AS w (name, seen, cut, op, time)
ORDER BY w.name COLLATE pg_catalog."C"
ON CONFLICT (name) DO UPDATE SET
  base = CASE WHEN d.base OPERATOR(pg_catalog.=) excluded.seen
              THEN greatest(d.base OPERATOR(pg_catalog.+) 1, excluded.base) ELSE d.base END,
  snap = CASE WHEN d.base OPERATOR(pg_catalog.=) excluded.seen
              THEN ($4::pg_catalog.text[])[pg_catalog.array_position($1::pg_catalog.text[], d.name)]
              ELSE d.snap END,
  log  = CASE WHEN d.base OPERATOR(pg_catalog.=) excluded.seen
              THEN pg_catalog.substr(d.log, excluded.cut::integer OPERATOR(pg_catalog.+) 1)
              ELSE d.log END
         OPERATOR(pg_catalog.||) CASE
              WHEN pg_catalog.right(d.log, 1)
                  OPERATOR(pg_catalog.=) ANY (ARRAY['', ';']::pg_catalog.text[])
                AND CASE
                  WHEN d.base OPERATOR(pg_catalog.=) excluded.seen THEN true
                  WHEN d.base OPERATOR(pg_catalog.=)
                      ($8::bigint[])[pg_catalog.array_position($7::pg_catalog.text[], d.name)]
                    AND pg_catalog.octet_length(d.snap) OPERATOR(pg_catalog.=)
                      ($9::bigint[])[pg_catalog.array_position($7::pg_catalog.text[], d.name)]
                  THEN true
                  ELSE pg_catalog.left(d.snap, 3)
                      OPERATOR(pg_catalog.=) ANY (ARRAY['', 'v1 ']::pg_catalog.text[])
                    AND pg_catalog.right(d.snap, 1)
                      OPERATOR(pg_catalog.=) ANY (ARRAY['', ';']::pg_catalog.text[])
                END
              THEN excluded.log ELSE ''
            END
RETURNING
  name, base,
  CASE WHEN base OPERATOR(pg_catalog.=)
           ($8::bigint[])[pg_catalog.array_position($7::pg_catalog.text[], name)]
         AND pg_catalog.octet_length(snap) OPERATOR(pg_catalog.=)
           ($9::bigint[])[pg_catalog.array_position($7::pg_catalog.text[], name)]
       THEN '' ELSE snap END,
  log
