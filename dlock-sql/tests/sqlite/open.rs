//! Opening a file, the message of each refusal, and the findings about a file.

use std::fs;

use dlock_core::{
    ConfigIssue, Error, ErrorKind, Exclusion, Fencing, Finding, Level, Registry, Scope, WakeUp,
};
use dlock_sql::{SQLITE, Sqlite, SqliteConfig};

use crate::support::{LONG, Store, exclusive, free, lock, take};

async fn refused(config: SqliteConfig, issue: ConfigIssue, remedy: &str) -> Error {
    let error = Sqlite::open(config).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config(issue), "{error}");
    assert!(error.to_string().contains(remedy), "{error}");
    error
}

async fn script(store: &Store, sql: &'static str) {
    let options =
        sqlx::sqlite::SqliteConnectOptions::new().filename(store.path()).create_if_missing(true);
    let mut conn = sqlx::ConnectOptions::connect(&options).await.unwrap();
    sqlx::raw_sql(sql).execute(&mut conn).await.unwrap();
}

#[tokio::test]
async fn a_missing_file_is_not_created_by_default() {
    let store = Store::new();
    refused(SqliteConfig::new(store.path()), ConfigIssue::SchemaMissing, "create_schema").await;
    assert!(!store.path().exists());
}

#[tokio::test]
async fn missing_tables_are_not_created_by_default() {
    let store = Store::new();
    fs::write(store.path(), "").unwrap();
    refused(SqliteConfig::new(store.path()), ConfigIssue::SchemaMissing, "SCHEMA").await;
    script(&store, "CREATE TABLE theirs (x)").await;
    refused(SqliteConfig::new(store.path()), ConfigIssue::SchemaMissing, "SCHEMA").await;
}

#[tokio::test]
async fn existing_tables_are_opened_by_default() {
    let store = Store::new();
    drop(store.open().await);
    Sqlite::open(SqliteConfig::new(store.path())).await.unwrap();
}

#[tokio::test]
async fn the_shipped_schema_can_be_applied_beside_other_tables() {
    let store = Store::new();
    script(&store, "CREATE TABLE theirs (x)").await;
    script(&store, include_str!("../../src/sqlite/schema.sql")).await;
    script(&store, include_str!("../../src/sqlite/schema.sql")).await;
    let client = Sqlite::open(SqliteConfig::new(store.path())).await.unwrap();
    take(&client, &exclusive("x")).await;
}

#[tokio::test]
async fn tables_in_another_journal_mode_work() {
    let store = Store::new();
    script(
        &store,
        concat!(include_str!("../../src/sqlite/schema.sql"), "PRAGMA journal_mode = DELETE"),
    )
    .await;
    let (a, b) = (store.open().await, store.open().await);
    let (first, second) = (exclusive("x"), exclusive("x"));
    take(&a, &first).await;
    crate::support::queue(&b, &second).await;
    free(&a, &first).await;
    crate::support::granted(&b, &second).await;
}

#[tokio::test]
async fn another_programs_database_is_refused() {
    let store = Store::new();
    script(&store, "CREATE TABLE theirs (x)").await;
    let error = refused(store.config(), ConfigIssue::ForeignStore, "file of their own").await;
    assert!(error.to_string().contains("theirs"), "{error}");
}

#[tokio::test]
async fn tables_of_our_name_and_another_form_are_refused() {
    let store = Store::new();
    script(&store, "CREATE TABLE dlock_lock (x); CREATE TABLE dlock_schema (y)").await;
    refused(store.config(), ConfigIssue::ForeignStore, "file of their own").await;
    let store = Store::new();
    let sql = "CREATE TABLE dlock_lock (x); CREATE TABLE dlock_schema (id, version)";
    script(&store, sql).await;
    refused(store.config(), ConfigIssue::ForeignStore, "file of their own").await;
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused() {
    let store = Store::new();
    for text in ["no database", &"no database\n".repeat(1000)] {
        fs::write(store.path(), text).unwrap();
        for config in [store.config(), SqliteConfig::new(store.path())] {
            refused(config, ConfigIssue::ForeignStore, "file of their own").await;
        }
        assert_eq!(fs::read_to_string(store.path()).unwrap(), text);
    }
}

#[tokio::test]
async fn a_newer_version_is_refused() {
    let store = Store::new();
    drop(store.open().await);
    script(&store, "UPDATE dlock_schema SET version = 2").await;
    let error = refused(store.config(), ConfigIssue::SchemaNewer, "same version").await;
    assert!(error.to_string().contains("version 2"), "{error}");
}

#[tokio::test]
async fn a_path_that_can_not_be_used_is_refused() {
    let store = Store::new();
    let dir = store.path().parent().unwrap().to_owned();
    fs::write(dir.join("file"), "x").unwrap();
    for path in [dir.join("missing/locks.db"), dir.join("file/locks.db"), dir.clone(), "..".into()]
    {
        let config = SqliteConfig::new(path).with_create_schema(true);
        refused(config, ConfigIssue::Access, "directory that exists").await;
    }
}

#[tokio::test]
async fn a_database_in_memory_and_an_empty_path_are_refused() {
    for (path, remedy) in [(":memory:", "memory:"), ("", "sqlite:/dir/locks.db")] {
        refused(SqliteConfig::new(path), ConfigIssue::Url, remedy).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_clients_may_open_a_new_file_at_once() {
    for _ in 0..5 {
        let store = Store::new();
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..16 {
            let config = store.config().with_busy_timeout(LONG);
            tasks.spawn(async move {
                let client = Sqlite::open(config).await.unwrap();
                let request = exclusive("x");
                lock(&client, &request).await;
                free(&client, &request).await;
            });
        }
        tasks.join_all().await;
    }
}

#[tokio::test]
async fn a_url_opens_the_file_and_names_it_canonically() {
    let store = Store::new();
    let dir = store.path().parent().unwrap().canonicalize().unwrap();
    let registry = Registry::new().with(SQLITE);
    let url = format!("sqlite://{}/./locks.db?dlock.create_schema=true", dir.display());
    let backend = registry.connect(url.parse().unwrap(), &[]).await.unwrap();
    assert_eq!(backend.store(), format!("sqlite:{}/locks.db", dir.display()));

    std::os::unix::fs::symlink(store.path(), dir.join("link.db")).unwrap();
    let linked = Sqlite::open(SqliteConfig::new(dir.join("link.db"))).await.unwrap();
    assert_eq!(linked.store(), backend.store());

    let url = format!("sqlite:{}/locks.db?dlock.nope=1", dir.display());
    let error = registry.connect(url.parse().unwrap(), &[]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::UnknownOption));
}

#[tokio::test]
async fn the_guarantees_are_those_of_a_file() {
    let store = Store::new();
    let client = store.open().await;
    let given = client.guarantees();
    assert_eq!(given.exclusion, Exclusion::Restart);
    assert_eq!(given.fencing, Fencing::Clock);
    assert_eq!(given.scope, Scope::Machine);
    assert_eq!(given.wake_up, if cfg!(unix) { WakeUp::Push } else { WakeUp::Poll });
}

#[tokio::test]
async fn a_dropped_client_closes_the_file() {
    let store = Store::new();
    drop(store.open().await);
    let wal = store.path().with_file_name("locks.db-wal");
    let closed = async {
        while wal.exists() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, closed).await.expect("still open");
}

#[track_caller]
fn amiss(findings: &[Finding]) -> Vec<&Finding> {
    assert!(findings.len() >= 5, "{findings:?}");
    let amiss: Vec<_> = findings.iter().filter(|finding| finding.level > Level::Fine).collect();
    assert!(amiss.iter().all(|finding| finding.remedy.is_some()), "{amiss:?}");
    amiss
}

#[tokio::test]
async fn a_new_file_is_fine() {
    let store = Store::new();
    let findings = store.open().await.examine().await.unwrap();
    assert!(amiss(&findings).is_empty(), "{findings:?}");
}

#[tokio::test]
async fn missing_tables_are_wrong() {
    let store = Store::new();
    let client = store.open().await;
    sqlx::raw_sql("DROP TABLE dlock_lock").execute(&mut store.raw().await).await.unwrap();
    let findings = client.examine().await.unwrap();
    let [finding] = amiss(&findings)[..] else { panic!("{findings:?}") };
    assert_eq!((finding.about, finding.level), ("tables", Level::Wrong));
    assert!(finding.remedy.as_ref().is_some_and(|text| text.contains("create_schema")));
}

#[tokio::test]
async fn tables_of_a_later_version_are_wrong() {
    let store = Store::new();
    let client = store.open().await;
    let later = "UPDATE dlock_schema SET version = 99";
    sqlx::raw_sql(later).execute(&mut store.raw().await).await.unwrap();
    let findings = client.examine().await.unwrap();
    let [finding] = amiss(&findings)[..] else { panic!("{findings:?}") };
    assert!(finding.found.contains("99"), "{finding:?}");
}
