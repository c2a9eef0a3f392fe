//! Holders that exclude each other never overlap, and two names never share a lock.

use std::sync::{
    Arc,
    atomic::{AtomicI64, AtomicU64, Ordering::SeqCst},
};

use dlock_core::{DynBackend, Mode};

use crate::support::{LEASE, Store, ask, exclusive, free, lock, take};

/// The held share of a name. A writer holds `WHOLE`.
#[derive(Default)]
struct Inside {
    held: AtomicI64,
    last_token: AtomicU64,
}

const WHOLE: i64 = 1 << 40;

async fn work(client: DynBackend, name: String, inside: Arc<Inside>, rounds: usize, mode: Mode) {
    let (units, most) = match mode {
        Mode::Exclusive => (WHOLE, WHOLE),
        Mode::Permits { n, of } => (i64::from(n), i64::from(of)),
        _ => (1, WHOLE - 1),
    };
    for _ in 0..rounds {
        let request = ask(&name, mode, LEASE);
        let grant = lock(&client, &request).await;
        let held = inside.held.fetch_add(units, SeqCst) + units;
        assert!(held <= most, "{mode:?} of {name}: {held}");
        if mode == Mode::Exclusive {
            let before = inside.last_token.swap(grant.token.get(), SeqCst);
            assert!(grant.token.get() > before, "{} after {before}", grant.token);
        }
        tokio::task::yield_now().await;
        inside.held.fetch_sub(units, SeqCst);
        free(&client, &request).await;
    }
}

async fn no_overlap(modes: &[Mode], names: usize, rounds: usize) {
    let store = Store::new();
    let clients = [store.open().await, store.open().await, store.open().await];
    let inside: Vec<_> = (0..names).map(|_| Arc::<Inside>::default()).collect();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..24 {
        let client = clients[task % clients.len()].clone();
        let at = task % names;
        let mode = modes[(task / names) % modes.len()];
        tasks.spawn(work(client, format!("lock {at}"), inside[at].clone(), rounds, mode));
    }
    tasks.join_all().await;
    for (_, snap, log) in store.rows().await {
        // All operations together have about ten times this length. The next client folds a log of
        // 4 KiB.
        assert!(snap.len() < 4096 && log.len() < 8192, "{} and {}", snap.len(), log.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mutexes_on_one_name_never_overlap() {
    no_overlap(&[Mode::Exclusive], 1, 25).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mutexes_on_many_names_never_overlap() {
    no_overlap(&[Mode::Exclusive], 8, 60).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_never_overlap_with_any_other_holder() {
    no_overlap(&[Mode::Shared, Mode::Exclusive, Mode::Shared], 2, 40).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_are_never_granted_twice() {
    let (one, two) = (Mode::permits(1, 5).unwrap(), Mode::permits(2, 5).unwrap());
    no_overlap(&[one, two], 2, 40).await;
}

#[tokio::test]
async fn a_held_lock_is_not_granted_to_another_process() {
    let store = Store::new();
    let (a, b) = (store.open().await, store.open().await);
    let held = exclusive("x");
    lock(&a, &held).await;
    crate::support::queue(&b, &exclusive("x")).await;
}

const HOSTILE: [&str; 24] = [
    "job",
    "Job",
    "JOB",
    "job ",
    " job",
    "j\u{f6}b",
    "jo\u{308}b",
    "\u{ff4a}\u{ff4f}\u{ff42}",
    "'",
    "''",
    "\"",
    "\\",
    "\\\"",
    "\\u0041",
    "A",
    "'; DROP TABLE dlock_lock; --",
    "%",
    "_",
    "🔒",
    "🔒\u{200d}",
    "1",
    "1.0",
    "null",
    "[1,2]",
];

#[tokio::test]
async fn every_name_is_a_separate_lock() {
    let store = Store::new();
    let client = store.open().await;
    let long = "x".repeat(512);
    let names: Vec<&str> = HOSTILE.into_iter().chain([&*long]).collect();
    let requests: Vec<_> = names.iter().map(|name| exclusive(name)).collect();
    for request in &requests {
        take(&client, request).await;
    }
    let mut expected: Vec<String> = names.iter().map(ToString::to_string).collect();
    expected.sort();
    let rows: Vec<String> = store.rows().await.into_iter().map(|row| row.0).collect();
    assert_eq!(rows, expected);
    for request in &requests {
        let state = client.inspect(&request.name).await.unwrap();
        assert_eq!(state.holders[0].claim, request.claim);
        free(&client, request).await;
    }
}

#[tokio::test]
async fn every_name_survives_a_batch() {
    let store = Store::new();
    let client = store.open().await;
    let requests = HOSTILE.map(exclusive);
    let answers = client.acquire_all(&requests).expect("supported").await.unwrap();
    assert!(answers.iter().all(|answer| matches!(answer, dlock_core::Acquired::Granted(_))));
    for request in &requests {
        let state = client.inspect(&request.name).await.unwrap();
        assert_eq!(state.holders[0].claim, request.claim);
        free(&client, request).await;
    }
}
