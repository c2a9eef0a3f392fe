-- Appends operations to the row of a lock, and folds what the caller has replayed.
-- $1 name: text       $2 seen: the `base` that $4 was made from, or 0
-- $3 cut: how many characters of the log $4 contains; without a fold, how many bytes the snap of $6 has
-- $4 snap: text    $5 op: text, without its time    $6 known: the `base` whose snap the caller has, or 0
-- $7 time: that of the last operation that $4 contains. A log of the same base with another one there
-- is not the log that the caller has seen: a crash, or another server, has lost that.
-- Returns the row: base, snap (empty if known), log. Times: microseconds since 1970.
-- A row that is not there begins empty, whatever the caller remembers of an earlier one. A row of
-- an unknown format, or one that was cut off, stays unchanged. A snap that the caller has read is not
-- read again: it may be long, and is then stored elsewhere. Its base and its length tell that it is
-- the same, and the server knows both without reading it.
INSERT INTO dlock_lock AS d (name, base, seen, cut, snap, log)
SELECT
  $1::pg_catalog.text, clock.now,
  CASE WHEN $2::bigint OPERATOR(pg_catalog.=) 0 THEN 0 ELSE coalesce((
    SELECT e.base FROM dlock_lock AS e
    WHERE e.name OPERATOR(pg_catalog.=) $1::pg_catalog.text
      AND e.base OPERATOR(pg_catalog.=) $2::bigint
      AND pg_catalog.left(e.log, $3::integer)
        OPERATOR(pg_catalog.~~) pg_catalog.concat('% ', $7::bigint, ';')
  ), 0) END,
  $3::bigint, '',
  pg_catalog.concat($5::pg_catalog.text, ' ', clock.now, ';')
FROM (SELECT (extract(epoch FROM pg_catalog.statement_timestamp()) OPERATOR(pg_catalog.*) 1000000)::bigint AS now) AS clock
ON CONFLICT (name) DO UPDATE SET
  base = CASE WHEN d.base OPERATOR(pg_catalog.=) excluded.seen
              THEN greatest(d.base OPERATOR(pg_catalog.+) 1, excluded.base) ELSE d.base END,
  snap = CASE WHEN d.base OPERATOR(pg_catalog.=) excluded.seen
              THEN $4::pg_catalog.text ELSE d.snap END,
  log  = CASE WHEN d.base OPERATOR(pg_catalog.=) excluded.seen
              THEN pg_catalog.substr(d.log, excluded.cut::integer OPERATOR(pg_catalog.+) 1)
              ELSE d.log END
         OPERATOR(pg_catalog.||) CASE
              WHEN pg_catalog.right(d.log, 1)
                  OPERATOR(pg_catalog.=) ANY (ARRAY['', ';']::pg_catalog.text[])
                AND CASE
                  WHEN d.base OPERATOR(pg_catalog.=) excluded.seen THEN true
                  WHEN d.base OPERATOR(pg_catalog.=) $6::bigint
                    AND pg_catalog.octet_length(d.snap) OPERATOR(pg_catalog.=) $3::bigint THEN true
                  ELSE pg_catalog.left(d.snap, 3)
                      OPERATOR(pg_catalog.=) ANY (ARRAY['', 'v1 ']::pg_catalog.text[])
                    AND pg_catalog.right(d.snap, 1)
                      OPERATOR(pg_catalog.=) ANY (ARRAY['', ';']::pg_catalog.text[])
                END
              THEN excluded.log ELSE ''
            END
RETURNING
  base,
  CASE WHEN base OPERATOR(pg_catalog.=) $6::bigint
         AND pg_catalog.octet_length(snap) OPERATOR(pg_catalog.=) $3::bigint
       THEN '' ELSE snap END,
  log
