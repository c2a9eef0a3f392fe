//! The rows in the table, and rows that can't be read.

use std::time::Duration;

use dlock_core::{AcquireRequest, Mode, Renewal, Renewed};
use dlock_sql::{Sqlite, SqliteConfig};

use crate::support::{LEASE, LONG, SHORT, Store, ask, exclusive, free, lock, queue, take};

async fn gone(store: &Store) {
    let empty = async {
        while !store.rows().await.is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, empty).await.expect("the row stays");
}

#[tokio::test]
async fn ten_thousand_cycles_leave_a_small_row() {
    let store = Store::new();
    let client = store.open().await;
    for _ in 0..10_000 {
        let request = exclusive("x");
        take(&client, &request).await;
        free(&client, &request).await;
    }
    let rows = store.rows().await;
    assert_eq!(rows.len(), 1);
    assert!(rows[0].1.len() + rows[0].2.len() < 1000, "{rows:?}");
}

#[tokio::test]
async fn ten_thousand_locks_that_are_held_keep_small_rows() {
    let store = Store::new();
    let client = store.open().await;
    let requests: Vec<_> = (0..10_000).map(|n| exclusive(&format!("held {n}"))).collect();
    for part in requests.chunks(1000) {
        client.acquire_all(part).unwrap().await.unwrap();
    }
    let renewals: Vec<_> = requests
        .iter()
        .map(|request| Renewal::new(request.as_claim(), request.mode, request.lease))
        .collect();
    for _ in 0..6 {
        let renewed = client.renew(&renewals).await.unwrap();
        assert!(renewed.iter().all(|answer| *answer == Renewed::Kept));
    }
    let longest = store.rows().await.into_iter().map(|(_, snap, log)| snap.len() + log.len()).max();
    assert!(longest.is_some_and(|longest| longest < 400), "{longest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_fold_at_the_same_time_lose_nothing() {
    let store = Store::new();
    let clients = [store.open().await, store.open().await];
    let mut tasks = tokio::task::JoinSet::new();
    for client in clients.clone() {
        // Readers do not wait, so both clients write and fold as fast as they can.
        tasks.spawn(async move {
            let kept = ask("x", Mode::Shared, LEASE);
            take(&client, &kept).await;
            for _ in 0..300 {
                let request = ask("x", Mode::Shared, LEASE);
                take(&client, &request).await;
                free(&client, &request).await;
            }
            kept
        });
    }
    let kept = tasks.join_all().await;
    for client in &clients {
        let state = client.inspect(&kept[0].name).await.unwrap();
        let mut holders: Vec<_> = state.holders.iter().map(|h| h.claim).collect();
        let mut expected: Vec<_> = kept.iter().map(|request| request.claim).collect();
        holders.sort();
        expected.sort();
        assert_eq!(holders, expected);
    }
}

#[tokio::test]
async fn a_slow_client_does_not_undo_what_others_did() {
    let store = Store::new();
    let (slow, fast) = (store.open().await, store.open().await);
    let kept = ask("x", Mode::Shared, LEASE);
    take(&slow, &kept).await;
    for _ in 0..3 {
        // The slow client reads a state that has to be folded, and then misses the next operations.
        for _ in 0..2 {
            let request = ask("x", Mode::Shared, LEASE);
            take(&slow, &request).await;
            free(&slow, &request).await;
        }
        let other = ask("x", Mode::Shared, LEASE);
        take(&fast, &other).await;
        let renewal = Renewal::new(kept.as_claim(), Mode::Shared, LEASE);
        assert_eq!(slow.renew(&[renewal]).await.unwrap(), [Renewed::Kept]);
        let state = fast.inspect(&kept.name).await.unwrap();
        assert!(state.holders.iter().any(|holder| holder.claim == other.claim));
        free(&fast, &other).await;
    }
}

#[tokio::test]
async fn any_client_deletes_unused_rows() {
    let store = Store::new();
    let retention = Duration::from_millis(50);
    let dead = {
        let client = store.open().await;
        for n in 0..600 {
            let request = exclusive(&format!("used {n}"));
            take(&client, &request).await;
            free(&client, &request).await;
        }
        // Its holder dies.
        let dead = ask("dead", Mode::Exclusive, SHORT);
        take(&client, &dead).await;
        dead
    };
    let finder = Sqlite::open(store.config().with_retention(retention)).await.unwrap();
    gone(&store).await;
    assert!(finder.inspect(&dead.name).await.unwrap().is_free());
}

#[tokio::test]
async fn a_deleted_row_is_not_restored_from_the_cache() {
    let store = Store::new();
    let client = store.open().await;
    let kept = ["x", "y"].map(|name| ask(name, Mode::Shared, LEASE));
    let renewals =
        kept.clone().map(|request| Renewal::new(request.as_claim(), Mode::Shared, LEASE));
    // After some of these numbers of operations the client remembers the rows in short form.
    for (renewals, times) in
        (0..6).flat_map(|times| [(&renewals[..1], times), (&renewals[..], times)])
    {
        for request in &kept {
            take(&client, request).await;
        }
        for _ in 0..times {
            client.renew(renewals).await.unwrap();
        }
        sqlx::raw_sql("DELETE FROM dlock_lock").execute(&mut store.raw().await).await.unwrap();
        let renewed = client.renew(renewals).await.unwrap();
        assert!(renewed.iter().all(|answer| *answer == Renewed::Lost), "{renewed:?}");
    }
}

#[tokio::test]
async fn a_recently_used_row_with_an_old_snapshot_is_kept() {
    let store = Store::new();
    let client = store.open().await;
    let insert = "INSERT INTO dlock_lock (name, base, seen, cut, snap, log)
        SELECT n.value, 1, 0, 0, '',
          'R 00000000000000000000000000000001 0 ' || CASE n.value WHEN 'old' THEN 2 ELSE
          CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000 END || ';'
        FROM json_each('[\"late\",\"old\"]') AS n";
    sqlx::raw_sql(insert).execute(&mut store.raw().await).await.unwrap();
    drop(client);
    let _finder = store.open().await;
    let names = async || store.rows().await.into_iter().map(|row| row.0).collect::<Vec<_>>();
    let deleted = async {
        while names().await.contains(&"old".to_owned()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, deleted).await.expect("the old row stays");
    assert_eq!(names().await, ["late"]);
}

#[tokio::test]
async fn rows_in_use_are_not_deleted() {
    let store = Store::new();
    let config = store.config().with_retention(Duration::from_millis(30));
    let client = Sqlite::open(config).await.unwrap();
    let (held, waiting) = (exclusive("x"), exclusive("x"));
    take(&client, &held).await;
    queue(&client, &waiting).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let state = client.inspect(&held.name).await.unwrap();
    assert_eq!((state.holders.len(), state.waiters.len()), (1, 1));
    free(&client, &held).await;
    lock(&client, &waiting).await;
    free(&client, &waiting).await;
    gone(&store).await;
}

#[tokio::test]
async fn an_unreadable_row_is_reported_and_left_alone() {
    let store = Store::new();
    let config = store.config().with_retention(Duration::from_millis(30));
    let client = Sqlite::open(config).await.unwrap();
    let insert = "INSERT INTO dlock_lock (name, base, seen, cut, snap, log) \
                  VALUES ('x', 1, 0, 0, 'v9 0 0;', 'Z;')";
    sqlx::raw_sql(insert).execute(&mut store.raw().await).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let error = client.inspect(&crate::support::name("x")).await.unwrap_err();
    assert_eq!(error.kind(), dlock_core::ErrorKind::Protocol);
    assert!(client.acquire(&exclusive("x")).await.is_err());
    assert_eq!(store.rows().await.len(), 1);
    take(&client, &exclusive("y")).await;
}

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

/// A row whose name or snapshot is not text is not deleted by the sweep, and disturbs no other row.
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

/// The pages in the write-ahead log. Each has a header of 24 bytes, and so has the log, with 32.
fn logged_pages(store: &Store) -> u64 {
    let log = store.path().with_extension("db-wal");
    std::fs::metadata(log).unwrap().len().saturating_sub(32) / (4096 + 24)
}

#[tokio::test]
async fn an_operation_of_a_long_queue_writes_two_pages() {
    let store = Store::new();
    let client = store.open().await;
    let held = exclusive("a");
    take(&client, &held).await;
    for waiters in [20, 60, 200] {
        for _ in 0..waiters {
            queue(&client, &exclusive("a")).await;
        }
        // A new snapshot writes more, so a short log comes first.
        let renewal = Renewal::new(held.as_claim(), held.mode, held.lease);
        let renewals = std::slice::from_ref(&renewal);
        while store.rows().await[0].2.len() > 100 {
            assert_eq!(client.renew(renewals).await.unwrap(), [Renewed::Kept]);
        }
        let empty = "PRAGMA wal_checkpoint(TRUNCATE)";
        sqlx::query(empty).fetch_all(&mut store.raw().await).await.unwrap();
        let snapshot = store.rows().await[0].1.clone();
        let before = logged_pages(&store);
        for _ in 0..4 {
            assert_eq!(client.renew(renewals).await.unwrap(), [Renewed::Kept]);
        }
        assert_eq!(store.rows().await[0].1, snapshot);
        let pages = logged_pages(&store) - before;
        assert!(pages <= 4 * 2, "{pages} pages with a snapshot of {} bytes", snapshot.len());
    }
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
    let fail = crate::formats::fail_where_the_client_knows_another;
    fail(&client, &crate::formats::CHANGES, run, row).await.unwrap();
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
