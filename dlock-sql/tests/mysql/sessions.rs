//! Settings of the sessions of an application's pool, from the start or changed later.

use std::{
    net::TcpListener,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use dlock_core::{AcquireRequest, Acquired, ConfigIssue, DynBackend, Error, ErrorKind};
use dlock_sql::{Mysql, MysqlConfig, Scheme};
use dlock_testlab::{
    Stop, Verdict,
    mariadb::{MariadbServer, Options},
};
use sqlx::{MySqlConnection, MySqlPool, mysql::MySqlPoolOptions};

use crate::support::{
    attempt, connect, exclusive, free, granted, lock, queue, refused, server, server_with, take,
    with_mariadb,
};

/// A pool on whose connections this statement was run.
pub(super) async fn pool_after(server: &MariadbServer, sql: &str) -> Result<MySqlPool, Stop> {
    let sql = sql.to_owned();
    let options = MySqlPoolOptions::new().max_connections(2).after_connect(move |conn, _| {
        let sql = sqlx::AssertSqlSafe(sql.clone());
        Box::pin(async move { sqlx::raw_sql(sql).execute(conn).await.map(drop) })
    });
    Ok(options.connect(&server.url()).await?)
}

async fn open(pool: &MySqlPool, returning: bool) -> Result<DynBackend, Error> {
    Mysql::open(MysqlConfig::from_pool(pool.clone())?.with_returning(returning)).await
}

/// All verbs, on names that are not ASCII, and on rows that are folded.
async fn works(client: &DynBackend, other: &DynBackend) -> Verdict {
    let names = ["é", "a\\'\"` % b", "🔒"];
    let all = names.map(exclusive);
    let taken = client.acquire_all(&all).ok_or_else(|| Stop::failed("one by one"))?.await?;
    assert!(taken.iter().all(|taken| matches!(taken, Acquired::Granted(_))), "{taken:?}");
    let listed = other.list("", 10).await?;
    assert_eq!(listed.len(), names.len(), "{listed:?}");
    for held in &all {
        let waits = exclusive(held.name.as_str());
        queue(other, &waits).await?;
        assert_eq!(other.acquire(&attempt(held.name.as_str())).await?, Acquired::Busy);
        let seen = other.inspect(&held.name).await?;
        assert_eq!((seen.holders.len(), seen.waiters.len()), (1, 1));
        free(client, held).await?;
        granted(other, &waits).await?;
        free(other, &waits).await?;
    }
    for _ in 0..12 {
        for client in [client, other] {
            let request = exclusive("é");
            lock(client, &request).await?;
            free(client, &request).await?;
        }
    }
    Ok(())
}

/// The longest log of a row: it stays short for as long as it is folded.
async fn longest(server: &MariadbServer) -> Result<u64, Stop> {
    let rows = server.query("SELECT COALESCE(MAX(LENGTH(log)), 0) FROM dlock_lock").await?;
    Ok(rows.concat().concat().parse()?)
}

/// In the first mode the server assigns columns all at once, in the others one after the other.
#[test]
fn a_fold_is_right_in_any_order_of_assignments() {
    with_mariadb(async {
        for mode in
            ["SIMULTANEOUS_ASSIGNMENT,STRICT_ALL_TABLES", "ORACLE,STRICT_ALL_TABLES", "TRADITIONAL"]
        {
            let server = server_with(&Options::new()).await?;
            let pool = pool_after(&server, &format!("SET sql_mode = '{mode}'")).await?;
            let look = connect(&server).await?;
            for returning in [true, false] {
                let holder = open(&pool, returning).await?;
                let others = [open(&pool, returning).await?, open(&pool, returning).await?];
                let (held, both) = (exclusive("n"), [exclusive("n2"), exclusive("n3")]);
                take(&holder, &held).await?;
                if let Some(taken) = holder.acquire_all(&both) {
                    taken.await?;
                }
                let holders = [&held, &both[0], &both[1]];
                for round in 0..40 {
                    // One client folds rows while the other one uses them.
                    let other = &others[round % 2];
                    let waits = holders.map(|held| exclusive(held.name.as_str()));
                    match round % 3 {
                        0 => other
                            .acquire_all(&waits[1..])
                            .ok_or_else(|| Stop::failed("?"))?
                            .await
                            .map(drop)?,
                        _ => queue(other, &waits[0]).await?,
                    }
                    for waits in &waits {
                        other.release(&waits.as_claim()).await?;
                    }
                    for held in holders {
                        let seen = look.inspect(&held.name).await?;
                        let seen: Vec<_> = seen.holders.iter().map(|holder| holder.claim).collect();
                        assert_eq!(seen, [held.claim], "{mode}, {} after {round}", held.name);
                    }
                }
                let log = longest(&server).await?;
                assert!(log < 2000, "nothing is folded with {mode}: {log}");
                for held in holders {
                    free(&holder, held).await?;
                }
            }
        }
        Ok(())
    });
}

/// Returns the value of the expression `what` for the row of a lock.
async fn row(server: &MariadbServer, request: &AcquireRequest, what: &str) -> Result<String, Stop> {
    let read = format!("SELECT {what} FROM dlock_lock WHERE name = '{}'", request.name);
    Ok(server.query(&read).await?.concat().concat())
}

/// Sends these acquires with one statement.
async fn ask_for(client: &DynBackend, asked: &[AcquireRequest]) -> Result<Vec<Acquired>, Stop> {
    match asked {
        [request] => Ok(vec![client.acquire(request).await?]),
        all => Ok(client.acquire_all(all).ok_or_else(|| Stop::failed("one by one"))?.await?),
    }
}

/// The holder folds the row and releases the lock with one statement. The next statement folds a
/// log of the same length that the other client has seen before: it must not undo the release.
#[test]
fn late_fold_does_not_undo_the_one_before() {
    with_mariadb(async {
        let server = server().await?;
        let mode = "SET sql_mode = 'SIMULTANEOUS_ASSIGNMENT,STRICT_ALL_TABLES'";
        let pool = pool_after(&server, mode).await?;
        for (returning, names) in
            [(true, &["a"][..]), (true, &["b", "c"]), (false, &["d"]), (false, &["e", "f"])]
        {
            let open = async || {
                let config = MysqlConfig::from_pool(pool.clone())?.with_connections(1);
                Mysql::open(config.with_returning(returning)).await
            };
            let (holder, other) = (open().await?, open().await?);
            let asks = || names.iter().map(|name| exclusive(name)).collect::<Vec<_>>();
            let (held, waits) = (asks(), asks());
            let is_held = |answer: &Acquired| matches!(answer, Acquired::Granted(_));
            assert!(ask_for(&holder, &held).await?.iter().all(is_held));
            let queued = ask_for(&other, &waits).await?;
            assert!(queued.iter().all(|answer| *answer == Acquired::Queued), "{queued:?}");
            // The next statement of the other client folds a log of this length.
            let seen = row(&server, &held[0], "LENGTH(log)").await?;
            // The second renewal folds the row. After the third one, the log has the same length
            // again.
            for _ in 0..3 {
                assert!(ask_for(&holder, &held).await?.iter().all(is_held));
            }
            for held in &held {
                free(&holder, held).await?;
                let folded = row(&server, held, "MOD(cut, 16777216)").await?;
                assert_eq!(folded, seen, "the folds differ in length");
            }
            let answers = ask_for(&other, &waits).await?;
            assert!(answers.iter().all(is_held), "a release was undone: {answers:?}");
            for waits in &waits {
                free(&other, waits).await?;
            }
        }
        Ok(())
    });
}

/// No statement depends on these settings.
#[test]
fn settings_of_the_pool_change_nothing() {
    with_mariadb(async {
        let server = server().await?;
        for settings in [
            "SET sql_mode = 'ANSI_QUOTES,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES,IGNORE_SPACE,\
             PAD_CHAR_TO_FULL_LENGTH,HIGH_NOT_PRECEDENCE,NO_UNSIGNED_SUBTRACTION,\
             ONLY_FULL_GROUP_BY,REAL_AS_FLOAT,TIME_ROUND_FRACTIONAL,STRICT_TRANS_TABLES'",
            "SET sql_safe_updates = 1, sql_select_limit = 1000, max_join_size = 1000000",
            "SET time_zone = '+13:00', lc_time_names = 'de_DE', div_precision_increment = 0",
            "SET NAMES latin1",
            "SET NAMES gbk",
            "SET NAMES binary",
            "SET character_set_results = NULL, collation_connection = latin1_swedish_ci",
            "SET group_concat_max_len = 4, max_sort_length = 64, unique_checks = 0",
            "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY",
            "SET completion_type = 2, foreign_key_checks = 0, low_priority_updates = 1",
        ] {
            let pool = pool_after(&server, settings).await?;
            for returning in [true, false] {
                let (client, other) =
                    (open(&pool, returning).await?, open(&pool, returning).await?);
                let done = works(&client, &other).await;
                done.map_err(|stop| Stop::failed(format!("{settings}: {stop:?}")))?;
            }
        }
        Ok(())
    });
}

/// A server with a binary log and the tables, and the address of a pool whose user has each right by
/// a role.
async fn server_with_roles() -> Result<(MariadbServer, String), Stop> {
    let server = server_with(&Options::new().with_config("log_bin = log")).await?;
    server
        .run_sql(
            "CREATE ROLE locks; GRANT ALL ON dlock.* TO locks; \
             CREATE ROLE reader; GRANT SELECT ON dlock.* TO reader; \
             CREATE USER app@'%' IDENTIFIED BY 'secret'; \
             GRANT locks TO app@'%'; GRANT reader TO app@'%'; \
             SET DEFAULT ROLE locks FOR app@'%'; \
             GRANT RELOAD, BINLOG ADMIN, REPLICATION SLAVE ADMIN ON *.* TO app@'%'",
        )
        .await?;
    let url = server.url_of("app", "secret", "dlock");
    Ok((server, url))
}

/// The settings that another part of the application can leave on a connection, so that locks need
/// another one.
const UNFIT: [&str; 15] = [
    "SET autocommit = 0",
    "SET sql_mode = ''",
    "SET sql_mode = 'EMPTY_STRING_IS_NULL,STRICT_ALL_TABLES'",
    "SET collation_connection = ucs2_general_ci",
    "SET timestamp = 86400",
    "SET sql_select_limit = 0",
    "SET max_join_size = 1",
    "SET sql_log_bin = 0",
    "SET skip_replication = 1",
    "SET ROLE NONE",
    "SET ROLE reader",
    "XA START 'x'",
    "XA START 'y'; XA END 'y'",
    "LOCK TABLES dlock_schema READ",
    "FLUSH TABLES WITH READ LOCK",
];

/// Simulates an application that did not reset the settings.
#[test]
fn a_connection_with_unfit_settings_is_not_used() {
    with_mariadb(async {
        let (server, url) = server_with_roles().await?;
        let other = connect(&server).await?;
        for left in UNFIT {
            let pool = MySqlPoolOptions::new().max_connections(1).connect(&url).await?;
            let client = open(&pool, true).await?;
            let held = exclusive("held");
            take(&client, &held).await?;
            let mut conn = pool.acquire().await?;
            let which = "SELECT CAST(CONNECTION_ID() AS SIGNED)";
            let first: i64 = sqlx::query_scalar(which).fetch_one(&mut *conn).await?;
            sqlx::raw_sql(left).execute(&mut *conn).await?;
            drop(conn);
            let done = async {
                free(&client, &held).await?;
                works(&client, &other).await
            };
            done.await.map_err(|stop| Stop::failed(format!("{left}: {stop:?}")))?;
            let last: i64 = sqlx::query_scalar(which).fetch_one(&pool).await?;
            assert_ne!(first, last, "{left}: it goes on");
        }
        Ok(())
    });
}

/// A cluster of one node. The pool is that of the administrator, who may set `wsrep_on`.
#[test]
fn a_connection_that_has_left_galera_is_not_used() {
    const PROVIDER: &str = "/usr/lib/galera/libgalera_smm.so";
    const LEFT: &str = "SET wsrep_on = 0";
    with_mariadb(async {
        if !Path::new(PROVIDER).exists() {
            return Err(Stop::undecided(format!("{PROVIDER} is not there: install galera-4")));
        }
        // For the other nodes.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let options = [
            "wsrep_on = ON".to_owned(),
            format!("wsrep_provider = {PROVIDER}"),
            "wsrep_cluster_address = gcomm://".to_owned(),
            "wsrep_node_address = 127.0.0.1".to_owned(),
            format!("wsrep_provider_options = \"gmcast.listen_addr=tcp://127.0.0.1:{port}\""),
            "binlog_format = ROW".to_owned(),
        ];
        let options =
            options.iter().fold(Options::new(), |options, line| options.with_config(line));
        let server = server_with(&options).await?;
        let pool = MySqlPoolOptions::new().max_connections(1).connect(&server.admin_url()).await?;
        let client = open(&pool, true).await?;
        let held = exclusive("held");
        take(&client, &held).await?;
        let id = "SELECT CAST(CONNECTION_ID() AS SIGNED)";
        let first: i64 = sqlx::query_scalar(id).fetch_one(&pool).await?;
        sqlx::raw_sql(LEFT).execute(&pool).await?;
        free(&client, &held).await?;
        let last: i64 = sqlx::query_scalar(id).fetch_one(&pool).await?;
        assert_ne!(first, last, "the session goes on");

        let options = MySqlPoolOptions::new().max_connections(1).after_connect(|conn, _| {
            Box::pin(async move { sqlx::raw_sql(LEFT).execute(conn).await.map(drop) })
        });
        let pool = options.connect(&server.admin_url()).await?;
        refused(MysqlConfig::from_pool(pool)?, ConfigIssue::Access, "wsrep_on = 1").await
    });
}

/// Runs this statement if the sessions of a pool are to change.
async fn set(
    conn: &mut MySqlConnection,
    sql: &'static str,
    changes: bool,
) -> Result<bool, sqlx::Error> {
    if changes {
        sqlx::raw_sql(sql).execute(conn).await?;
    }
    Ok(true)
}

/// All sessions of the pool have another role from some time on, so none is usable.
#[test]
fn a_pool_that_changes_all_roles_is_reported() {
    with_mariadb(async {
        let (server, url) = server_with_roles().await?;
        for (role, remedy) in [("SET ROLE reader", "SET DEFAULT ROLE"), ("SET ROLE NONE", "grant")]
        {
            let changes = Arc::new(AtomicBool::new(false));
            let [at_first, later] = [changes.clone(), changes.clone()];
            let options = MySqlPoolOptions::new()
                .max_connections(2)
                .after_connect(move |conn, _| {
                    let changes = at_first.load(SeqCst);
                    Box::pin(async move { set(conn, role, changes).await.map(drop) })
                })
                .before_acquire(move |conn, _| {
                    let changes = later.load(SeqCst);
                    Box::pin(set(conn, role, changes))
                });
            let client = open(&options.connect(&url).await?, true).await?;
            changes.store(true, SeqCst);
            let error = client.acquire(&attempt("a")).await.err();
            let error = error.ok_or_else(|| Stop::failed("with another role"))?;
            assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Access), "{error}");
            assert!(error.to_string().contains(remedy), "{error}");
        }
        drop(server);
        Ok(())
    });
}

#[test]
fn an_unfit_pool_is_refused_with_the_setting_to_change() {
    with_mariadb(async {
        let server = server().await?;
        for (sql, remedy) in [
            ("SET sql_mode = 'EMPTY_STRING_IS_NULL,STRICT_ALL_TABLES'", "EMPTY_STRING_IS_NULL"),
            ("SET collation_connection = ucs2_general_ci", "collation_connection"),
            ("SET timestamp = 86400", "SET timestamp = DEFAULT"),
            ("SET sql_select_limit = 1", "sql_select_limit"),
            ("SET max_join_size = 1", "max_join_size"),
        ] {
            let pool = pool_after(&server, sql).await?;
            refused(MysqlConfig::from_pool(pool)?, ConfigIssue::Access, remedy).await?;
        }
        Ok(())
    });
}

/// With this option of the server, `SYSDATE` also depends on the session's `timestamp`.
#[test]
fn a_stopped_clock_is_detected_whatever_sysdate_is() {
    with_mariadb(async {
        let server = server_with(&Options::new().with_config("sysdate_is_now = 1")).await?;
        let other = connect(&server).await?;
        let pool = MySqlPoolOptions::new().max_connections(1).connect(&server.url()).await?;
        let client = open(&pool, true).await?;
        let mut conn = pool.acquire().await?;
        sqlx::raw_sql("SET timestamp = 86400").execute(&mut *conn).await?;
        drop(conn);
        works(&client, &other).await?;
        let still = pool_after(&server, "SET timestamp = 86400").await?;
        refused(MysqlConfig::from_pool(still)?, ConfigIssue::Access, "SET timestamp").await
    });
}

/// Sessions that are read-only by default.
#[test]
fn a_server_with_read_only_sessions_by_default_is_used() {
    with_mariadb(async {
        let server = MariadbServer::start(&Options::new()).await?;
        server.run_sql("SET GLOBAL tx_read_only = 1").await?;
        let pool = || MySqlPoolOptions::new().max_connections(1).connect_lazy(&server.url());
        for (of_pool, plain) in [(false, false), (false, true), (true, false), (true, true)] {
            let config = match of_pool {
                true => MysqlConfig::from_pool(pool()?)?,
                false => MysqlConfig::from_url(&server.url().parse()?)?,
            };
            let config = if plain { config.with_plain(Scheme::Version) } else { config };
            let client = Mysql::open(config.with_create_schema(true)).await?;
            let request = exclusive("a");
            take(&client, &request).await?;
            free(&client, &request).await?;
            let again = "SET SESSION tx_read_only = 0; \
                         DROP TABLE IF EXISTS dlock_lock, dlock_schema, dlock_plain";
            server.run_sql(again).await?;
        }
        Ok(())
    });
}
