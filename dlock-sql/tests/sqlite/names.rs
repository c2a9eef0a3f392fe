//! Two names never share a lock, and no name breaks a statement.

use crate::support::{Store, exclusive, free, take};

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
