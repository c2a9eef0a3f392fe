//! The file and its tables: other names of the file, other programs, and invalid contents.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use dlock_core::{AcquireRequest, ConfigIssue, Error, ErrorKind, FencingToken, Level};
use dlock_sql::{Sqlite, SqliteConfig};
use sqlx::Connection as _;

use crate::support::{LEASE, LONG, Store, exclusive, free, name, take};

/// The variable with the file that a child of a test uses.
const FILE: &str = "DLOCK_TEST_SQLITE_FILE";

/// Returns the file that this process has to use, if it is a child.
pub(crate) fn of_child() -> Option<PathBuf> {
    std::env::var_os(FILE).map(PathBuf::from)
}

/// Makes another process run this test on this file, with the given command line.
pub(crate) fn in_child(file: &Path, test: &str, before: &[&str]) -> Output {
    let exe = std::env::current_exe().unwrap();
    let (mut command, exe) = match before {
        [] => (Command::new(&exe), None),
        [first, rest @ ..] => {
            let mut command = Command::new(first);
            command.args(rest);
            (command, Some(&exe))
        }
    };
    command.args(exe).args(["--exact", test, "--nocapture"]).env(FILE, file).output().unwrap()
}

/// Checks that the child has run its test, and that the test has passed.
#[track_caller]
pub(crate) fn passed(output: &Output) {
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}\n{errors}");
}

#[track_caller]
pub(crate) fn is_refused(error: &Error, issue: ConfigIssue, says: &str) {
    assert_eq!(error.kind(), ErrorKind::Config(issue), "{error}");
    assert!(error.to_string().contains(says), "{error}");
}

/// Another program, which reads the file and closes it.
#[tokio::test]
async fn visitor() {
    let Some(file) = of_child() else { return };
    let mut conn = crate::support::raw(&file).await;
    sqlx::query("SELECT count(*) FROM dlock_lock").fetch_all(&mut conn).await.unwrap();
    conn.close().await.unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_with_two_names_is_refused_by_either() {
    let store = Store::new();
    drop(store.open().await);
    // None of its data is in the log, which keeps the first name.
    let mut conn = store.raw().await;
    sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").fetch_all(&mut conn).await.unwrap();
    conn.close().await.unwrap();
    let other = store.path().with_file_name("other.db");
    fs::hard_link(store.path(), &other).unwrap();
    for path in [store.path(), other.clone()] {
        for create in [true, false] {
            let config = SqliteConfig::new(&path).with_create_schema(create);
            let error = Sqlite::open(config).await.unwrap_err();
            is_refused(&error, ConfigIssue::Access, "remove the other names");
        }
    }
    // No log was created under the other name.
    assert!(!other.with_file_name("other.db-wal").exists());

    let link = store.path().with_file_name("link.db");
    std::os::unix::fs::symlink(&other, &link).unwrap();
    let error = Sqlite::open(SqliteConfig::new(&link)).await.unwrap_err();
    is_refused(&error, ConfigIssue::Access, "2 names");

    fs::remove_file(store.path()).unwrap();
    Sqlite::open(SqliteConfig::new(&link).with_create_schema(true)).await.unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_that_is_linked_or_replaced_in_use_is_found() {
    let store = Store::new();
    let client = store.open().await;
    let other = store.path().with_file_name("other.db");
    let found = async |about| {
        let findings = client.examine().await.unwrap();
        findings.into_iter().find(|finding| finding.about == about).unwrap()
    };
    fs::hard_link(store.path(), &other).unwrap();
    let names = found("names").await;
    assert_eq!(names.level, Level::Wrong, "{names:?}");
    fs::remove_file(&other).unwrap();
    assert_eq!(found("names").await.level, Level::Fine);

    assert_eq!(found("file").await.level, Level::Fine);
    let log = store.path().with_file_name("locks.db-wal");
    fs::rename(&log, &other).unwrap();
    assert!(found("file").await.found.contains("-wal"));
    fs::rename(&other, &log).unwrap();
    assert_eq!(found("file").await.level, Level::Fine);
    fs::rename(store.path(), &other).unwrap();
    let moved = found("file").await;
    assert!(moved.level == Level::Wrong && moved.found.contains("replaced"), "{moved:?}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_deleted_or_replaced_file_is_reported_to_its_holder() {
    use dlock_core::{LockOptions, Locks, Mode, Released, Renewal, Renewed};

    // The file, its log and its shared memory are moved away, each alone or together. Within one
    // process, SQLite continues with the shared memory of the same file, so nothing replaces the last
    // two here.
    for (moved, is_replaced) in [
        (&[""][..], false),
        (&[""], true),
        (&["-wal"], false),
        (&["-shm"], false),
        (&["-wal", "-shm"], false),
        (&["", "-wal", "-shm"], true),
    ] {
        let store = Store::new();
        let client = store.open().await;
        let held = [exclusive("a"), exclusive("b")];
        for held in &held {
            take(&client, held).await;
        }
        // Long enough that the lock is not lost because this machine is busy.
        let options = LockOptions::new().with_lease(Duration::from_secs(6));
        let locks = Locks::new(store.open().await).unwrap().with_options(options).unwrap();
        let guard = locks.mutex("c").unwrap().lock().await.unwrap();
        for suffix in moved {
            let file = |name: &str| store.path().with_file_name(format!("{name}.db{suffix}"));
            fs::rename(file("locks"), file("other")).unwrap();
        }
        if is_replaced {
            // Another program creates a new file, and acquires the same locks.
            let new = store.open().await;
            take(&new, &exclusive("a")).await;
        }
        let renewal = |held: &AcquireRequest| Renewal::new(held.as_claim(), Mode::Exclusive, LEASE);
        let renewals = held.each_ref().map(renewal);
        assert_eq!(client.renew(&renewals).await.unwrap(), [Renewed::Forgotten; 2]);
        assert_eq!(client.renew(&renewals[..1]).await.unwrap(), [Renewed::Forgotten]);
        let error = client.acquire(&exclusive("d")).await.unwrap_err();
        is_refused(&error, ConfigIssue::Access, "deleted or replaced");
        assert!(client.inspect(&held[0].name).await.is_err());
        let released = client.release(&held[0].as_claim()).await.unwrap();
        assert_eq!(released, Released::AlreadyLost);
        tokio::time::timeout(LONG, guard.lost()).await.expect("the lock is not lost");
        let error = guard.check().unwrap_err().to_string();
        assert!(error.contains("lost its data"), "{error}");
    }
}

/// The log is deleted or cut off under a holder, and its shared memory stays.
#[cfg(unix)]
#[tokio::test]
async fn a_deleted_log_is_reported_to_new_clients() {
    for is_deleted in [true, false] {
        let store = Store::new();
        let holder = store.open().await;
        take(&holder, &exclusive("a")).await;
        let log = store.path().with_file_name("locks.db-wal");
        match is_deleted {
            true => fs::remove_file(&log).unwrap(),
            false => fs::File::options().write(true).open(&log).unwrap().set_len(0).unwrap(),
        }
        for config in [store.config(), SqliteConfig::new(store.path())] {
            let error = Sqlite::open(config).await.unwrap_err();
            is_refused(&error, ConfigIssue::Access, "-wal");
            assert!(error.to_string().contains("stop all programs"), "{error}");
        }
        drop(holder);
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_link_to_another_file_is_reported_to_the_holder() {
    use dlock_core::{Mode, Renewal, Renewed};

    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    for release in ["one", "two"] {
        fs::create_dir(path(release)).unwrap();
    }
    let leads_to = |release: &str| {
        let _ = fs::remove_file(path("current"));
        std::os::unix::fs::symlink(path(release), path("current")).unwrap();
    };
    let config = SqliteConfig::new(path("current").join("locks.db")).with_create_schema(true);
    leads_to("one");
    let client = Sqlite::open(config.clone()).await.unwrap();
    let held = exclusive("a");
    take(&client, &held).await;
    leads_to("two");
    let other = Sqlite::open(config).await.unwrap();
    take(&other, &exclusive("a")).await;
    let renewals = [Renewal::new(held.as_claim(), Mode::Exclusive, LEASE)];
    assert_eq!(client.renew(&renewals).await.unwrap(), [Renewed::Forgotten]);
    let error = client.acquire(&exclusive("b")).await.unwrap_err();
    is_refused(&error, ConfigIssue::Access, "deleted or replaced");
}

#[tokio::test]
async fn unusable_tables_are_refused_at_once() {
    const VERSION: &str = "CREATE TABLE dlock_schema (id INTEGER PRIMARY KEY, version INTEGER); \
                           INSERT INTO dlock_schema VALUES (1, 1);";
    for table in [
        "CREATE TABLE dlock_lock (x)",
        "CREATE TABLE dlock_lock (name, base, seen, cut, snap, log)",
        "CREATE VIEW dlock_lock AS SELECT '' name, 0 base, 0 seen, 0 cut, '' snap, '' log",
    ] {
        let store = Store::new();
        let mut conn = crate::support::raw_new(&store.path()).await;
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!("{VERSION} {table}")))
            .execute(&mut conn)
            .await
            .unwrap();
        conn.close().await.unwrap();
        let error = Sqlite::open(SqliteConfig::new(store.path())).await.unwrap_err();
        is_refused(&error, ConfigIssue::ForeignStore, "file of their own");
    }
}

#[tokio::test]
async fn a_trigger_on_the_tables_is_refused_and_never_runs() {
    let store = Store::new();
    drop(store.open().await);
    let mut conn = store.raw().await;
    let trigger = "CREATE TABLE ran (n); CREATE TRIGGER t AFTER INSERT ON DLOCK_LOCK BEGIN \
                   INSERT INTO ran VALUES (1); END";
    sqlx::raw_sql(trigger).execute(&mut conn).await.unwrap();
    for config in
        [SqliteConfig::new(store.path()).with_create_schema(true), SqliteConfig::new(store.path())]
    {
        let error = Sqlite::open(config).await.unwrap_err();
        is_refused(&error, ConfigIssue::ForeignStore, "drop it");
    }
    let ran: i64 =
        sqlx::query_scalar("SELECT count(*) FROM ran").fetch_one(&mut conn).await.unwrap();
    assert_eq!(ran, 0);
}

/// SQLite keeps any bytes as a text. None of these rows is a lock. The sweep does not delete them,
/// and they disturb no other row.
#[tokio::test]
async fn a_row_that_is_not_text_stops_neither_the_sweep_nor_the_list() {
    const INSERT: &str = "INSERT INTO dlock_lock (name, base, seen, cut, snap, log) VALUES";
    let store = Store::new();
    drop(store.open().await);
    let mut fill = "BEGIN;".to_owned();
    for n in 0..600 {
        let side = if n < 300 { 'a' } else { 'c' };
        fill += &format!(
            "{INSERT} ('{side}{n:04}', 1000000, 0, 0, '', 'R {n:032x} 0 1000000;'); \
             {INSERT} (CAST(X'62FF{n:04X}' AS TEXT), 1, 0, 0, '', '');"
        );
    }
    fill += &format!(
        "{INSERT} ('b1', 1, 0, 0, CAST(X'FF' AS TEXT), ''), \
         ('b2', 1, 0, 0, '', CAST(X'FF' AS TEXT)); COMMIT"
    );
    let mut conn = store.raw().await;
    sqlx::raw_sql(sqlx::AssertSqlSafe(fill)).execute(&mut conn).await.unwrap();
    let retention = std::time::Duration::from_secs(1);
    let client = Sqlite::open(store.config().with_retention(retention)).await.unwrap();
    let swept = async {
        loop {
            let count = "SELECT count(*) FROM dlock_lock";
            let left: i64 = sqlx::query_scalar(count).fetch_one(&mut conn).await.unwrap();
            if left == 602 {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(crate::support::LONG, swept).await.expect("the sweep has stopped");
    let held = exclusive("c");
    take(&client, &held).await;
    let listed = client.list("", 10).await.unwrap();
    let listed: Vec<&str> = listed.iter().map(|name| name.as_str()).collect();
    assert_eq!(listed, ["b1", "b2", "c"]);
}

#[tokio::test]
async fn opening_a_store_writes_nothing() {
    let store = Store::new();
    let client = store.open().await;
    assert!(store.rows().await.is_empty());
    let mut other = store.raw().await;
    let mut version = async || -> i64 {
        sqlx::query_scalar("PRAGMA data_version").fetch_one(&mut other).await.unwrap()
    };
    let before = version().await;
    drop(store.open().await);
    assert_eq!(version().await, before, "somebody has committed");
    drop(client);
}

#[tokio::test]
async fn used_up_tokens_are_reported_and_none_is_granted_twice() {
    let store = Store::new();
    let client = store.open().await;
    let nearly = FencingToken::new(FencingToken::MAX.get() - 2).unwrap();
    client.raise_tokens(&name("x"), nearly).await.unwrap();
    for token in [nearly.plus(1), FencingToken::MAX] {
        let last = exclusive("x");
        assert_eq!(take(&client, &last).await.token, token);
        free(&client, &last).await;
    }
    for _ in 0..3 {
        let late = exclusive("x");
        let error = client.acquire(&late).await.unwrap_err();
        is_refused(&error, ConfigIssue::Token, "no fencing token is left");
        client.release(&late.as_claim()).await.unwrap();
    }
    assert!(client.inspect(&name("x")).await.unwrap().is_free());
}
