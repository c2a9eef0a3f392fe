-- Tells how the server is set up. Reads no table of dlock's, so it needs no rights.
-- Takes no arguments. Returns one row:
--   0 version, 1 fsync, 2 synchronous_commit, 3 full_page_writes, 4 autovacuum: text
--   5 standby: boolean   6 the time: microseconds since 1970
--   7 how many more connections an ordinary user can have   8 how many there are at most
--   9 after how many milliseconds an idle connection is closed; 0 for never
--   10 how many seconds the oldest visible transaction in this database has gone on, prepared ones too
--   11 how many sessions in this database hide their transactions from this user, or report none
--   12 how many replication slots keep old row versions or files although nobody reads them
--   13 the age of the oldest transaction id of all databases, 14 from which on the server freezes rows
--   15 track_counts: text
--   16 how many connections this user can have, 17 how many it has   18, 19 the same in this database;
--   the limits are negative if there is none, and NULL for a superuser, who has none
--   20 the database with the oldest transaction id: text
--   21 how many transactions ago the oldest began whose row versions stay for a standby, or for a
--   replication slot that is in use   22 how many standbys do not show this user theirs
SELECT
  pg_catalog.current_setting('server_version'), pg_catalog.current_setting('fsync'),
  pg_catalog.current_setting('synchronous_commit'), pg_catalog.current_setting('full_page_writes'),
  pg_catalog.current_setting('autovacuum'), pg_catalog.pg_is_in_recovery(),
  (extract(epoch FROM pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000000)::bigint,
  pg_catalog.current_setting('max_connections')::bigint
    OPERATOR(pg_catalog.-) pg_catalog.current_setting('superuser_reserved_connections')::bigint
    -- From PostgreSQL 16 on.
    OPERATOR(pg_catalog.-) coalesce((SELECT v.setting::bigint FROM pg_catalog.pg_settings AS v
      WHERE v.name OPERATOR(pg_catalog.=) 'reserved_connections'), 0)
    OPERATOR(pg_catalog.-) (
      SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_activity WHERE datid IS NOT NULL
    ),
  pg_catalog.current_setting('max_connections')::bigint,
  coalesce((SELECT s.setting::bigint FROM pg_catalog.pg_settings AS s
    WHERE s.name OPERATOR(pg_catalog.=) 'idle_session_timeout'), 0),
  coalesce(greatest(
    (SELECT extract(epoch FROM
        pg_catalog.max(pg_catalog.statement_timestamp() OPERATOR(pg_catalog.-) a.xact_start))
      FROM pg_catalog.pg_stat_activity AS a
      WHERE a.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()),
    (SELECT extract(epoch FROM
        pg_catalog.max(pg_catalog.statement_timestamp() OPERATOR(pg_catalog.-) x.prepared))
      FROM pg_catalog.pg_prepared_xacts AS x
      WHERE x.database OPERATOR(pg_catalog.=) pg_catalog.current_database())
  ), 0)::bigint,
  -- The server shows neither state nor times of these, or has none (track_activities off).
  (SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_activity AS h
    WHERE h.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()
      AND (h.query OPERATOR(pg_catalog.=) '<insufficient privilege>'
        OR h.state OPERATOR(pg_catalog.=) 'disabled')),
  (SELECT pg_catalog.count(*) FROM pg_catalog.pg_replication_slots AS o WHERE NOT o.active),
  -- Without databases that were dropped half-way (-2), which the server ignores.
  (SELECT pg_catalog.max(pg_catalog.age(b.datfrozenxid))::bigint FROM pg_catalog.pg_database AS b
    WHERE b.datconnlimit OPERATOR(pg_catalog.<>) -2),
  pg_catalog.current_setting('autovacuum_freeze_max_age')::bigint,
  pg_catalog.current_setting('track_counts'),
  (SELECT r.rolconnlimit::bigint FROM pg_catalog.pg_roles AS r
    WHERE r.rolname OPERATOR(pg_catalog.=) session_user AND NOT r.rolsuper),
  (SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_activity AS u
    WHERE u.usename OPERATOR(pg_catalog.=) session_user),
  (SELECT d.datconnlimit::bigint FROM pg_catalog.pg_database AS d, pg_catalog.pg_roles AS s
    WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()
      AND s.rolname OPERATOR(pg_catalog.=) session_user AND NOT s.rolsuper),
  (SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_activity AS i
    WHERE i.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()),
  (SELECT n.datname::pg_catalog.text FROM pg_catalog.pg_database AS n
    WHERE n.datconnlimit OPERATOR(pg_catalog.<>) -2
    ORDER BY pg_catalog.age(n.datfrozenxid) DESC LIMIT 1),
  coalesce(greatest(
    (SELECT pg_catalog.max(pg_catalog.age(w.backend_xmin)) FROM pg_catalog.pg_stat_replication AS w),
    -- Its catalog_xmin keeps only versions of rows of catalogs, which dlock does not write.
    (SELECT pg_catalog.max(pg_catalog.age(k.xmin))
      FROM pg_catalog.pg_replication_slots AS k WHERE k.active)
  ), 0)::bigint,
  -- The server shows an ordinary user only that they are there.
  (SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_replication AS y WHERE y.state IS NULL)
