-- Appends operations to each of several rows, all or none, at one time of the clock.
-- ? 1: JSON array of [name, seen, cut, op, snap, time], as in apply_one.sql, with distinct names in
-- hexadecimal digits. Rows are locked in its order.
-- Returns nothing, or with returning.sql behind it the rows: name, base, snap, log.
INSERT INTO dlock_lock (name, base, seen, cut, snap, log)
SELECT
  UNHEX(w.name), TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), w.seen, w.cut, '',
  CONCAT(w.op, ' ', TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), ';')
FROM
  JSON_TABLE(? , '$[*]' COLUMNS (
    name VARCHAR(1024) PATH '$[0]', seen BIGINT PATH '$[1]', cut BIGINT PATH '$[2]',
    op MEDIUMTEXT PATH '$[3]', snap MEDIUMTEXT PATH '$[4]',
    time BIGINT PATH '$[5]'
  )) AS w
ON DUPLICATE KEY UPDATE
  cut  = IF(
    dlock_lock.base = VALUES(seen)
      AND LEFT(dlock_lock.log, MOD(VALUES(cut), 16777216)) LIKE CONCAT('% ', w.time, ';'),
    VALUES(cut), -VALUES(cut)
  ),
  log  = CONCAT(
    IF(
      IF(
        ABS(dlock_lock.cut) = VALUES(cut), dlock_lock.cut > 0,
        dlock_lock.base = VALUES(seen)
          AND LEFT(dlock_lock.log, MOD(VALUES(cut), 16777216)) LIKE CONCAT('% ', w.time, ';')
      ),
      SUBSTRING(dlock_lock.log, MOD(VALUES(cut), 16777216) + 1), dlock_lock.log
    ),
    IF(
      LEFT(dlock_lock.snap, 3) IN ('', 'v1 ') AND RIGHT(dlock_lock.snap, 1) IN ('', ';')
        AND RIGHT(dlock_lock.log, 1) IN ('', ';'),
      VALUES(log), ''
    )
  ),
  snap = IF(
    IF(
      ABS(dlock_lock.cut) = VALUES(cut), dlock_lock.cut > 0,
      dlock_lock.base = VALUES(seen)
        AND LEFT(dlock_lock.log, MOD(VALUES(cut), 16777216)) LIKE CONCAT('% ', w.time, ';')
    ),
    w.snap, dlock_lock.snap
  ),
  base = IF(
    IF(
      ABS(dlock_lock.cut) = VALUES(cut), dlock_lock.cut > 0,
      dlock_lock.base = VALUES(seen)
        AND LEFT(dlock_lock.log, MOD(VALUES(cut), 16777216)) LIKE CONCAT('% ', w.time, ';')
    ),
    GREATEST(dlock_lock.base + 1, VALUES(base)), dlock_lock.base
  )
