//! Records that can't be read.

use std::time::Duration;

use dlock_core::{AcquireRequest, Renewal, Renewed};
use dlock_sql::{Sqlite, SqliteConfig};

use crate::support::{Store, exclusive, free, take};

#[tokio::test]
async fn an_unreadable_record_costs_no_other_lock() {
    for spoiled in ["'v9 1 1;'", "CAST(X'FF' AS TEXT)"] {
        let store = Store::new();
        let client = store.open().await;
        let held: Vec<_> = (0..30).map(|n| exclusive(&format!("l{n:03}"))).collect();
        for held in &held {
            take(&client, held).await;
        }
        let spoil = format!("UPDATE dlock_lock SET log = '', snap = {spoiled} WHERE name = 'l029'");
        let spoil = sqlx::AssertSqlSafe(spoil);
        sqlx::raw_sql(spoil).execute(&mut store.raw().await).await.unwrap();
        let renewal = |request: &AcquireRequest| {
            let AcquireRequest { mode, lease, .. } = *request;
            Renewal::new(request.as_claim(), mode, lease)
        };
        let renewals: Vec<_> = held.iter().map(renewal).collect();
        let renewed = client.renew(&renewals).await.unwrap();
        assert_eq!(renewed[..29], [Renewed::Kept; 29], "{spoiled}");
        assert_eq!(renewed[29], Renewed::Unknown, "{spoiled}");
        assert!(client.renew(&renewals[29..]).await.is_err(), "{spoiled}");
    }
}

/// Rows whose name or snapshot is no text are nobody's to delete, and in nobody's way.
#[tokio::test]
async fn a_binary_row_stops_neither_the_sweep_nor_the_list() {
    let store = Store::new();
    drop(store.open().await);
    let rows = "INSERT INTO dlock_lock (name, base, seen, cut, snap, log) VALUES \
                ('a', 1000000, 0, 0, '', 'R 00000000000000000000000000000001 0 1000000;'), \
                ('b', 1, 0, 0, CAST(X'FF' AS TEXT), ''), (CAST(X'62FF' AS TEXT), 1, 0, 0, '', '')";
    sqlx::raw_sql(rows).execute(&mut store.raw().await).await.unwrap();
    let config = SqliteConfig::new(store.path()).with_retention(Duration::from_secs(1));
    let client = Sqlite::open(config).await.unwrap();
    let swept = async {
        let left = "SELECT count(*) FROM dlock_lock WHERE name = 'a'";
        while sqlx::query_scalar::<_, i64>(left).fetch_one(&mut store.raw().await).await.unwrap()
            > 0
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(crate::support::LONG, swept).await.expect("never swept");
    let held = exclusive("c");
    take(&client, &held).await;
    let listed = client.list("", 9).await.unwrap();
    let listed: Vec<_> = listed.iter().map(|name| name.as_str()).collect();
    assert_eq!(listed, ["b", "c"]);
    free(&client, &held).await;
}

#[tokio::test]
async fn rows_of_an_unknown_format_fail_and_stay_unchanged() {
    let store = Store::new();
    let client = store.open().await;
    let run = async |sql: String| {
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut store.raw().await).await?;
        Ok(())
    };
    let row = async || {
        let rows = store.rows().await;
        Ok(format!("{:?}", rows.iter().find(|(name, ..)| name == "a")))
    };
    crate::formats::fail_and_stay_unchanged(&client, run, row).await.unwrap();
}

#[tokio::test]
async fn golden_rows_are_written_and_read() {
    let store = Store::new();
    let (writer, reader) = (store.open().await, store.open().await);
    let golden = include_str!("../golden/sqlite-format-1.txt");
    let rows = async || {
        let rows = store.rows().await;
        Ok(rows.into_iter().map(|(name, snap, log)| vec![name, snap, log]).collect())
    };
    let run = async |sql: String| {
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut store.raw().await).await?;
        Ok(())
    };
    crate::golden::written_and_read(&writer, &reader, golden, rows, run).await.unwrap();
}
