//! Names that look like parts of keys.

use dlock_core::{DynBackend, LockName};
use dlock_testkit::Verdict;

use crate::support::{exclusive, free, name, run, start, take, works_fully};

/// Braces stand for hash slots in keys, and letters behind them for the parts of a lock.
const NAMES: [&str; 22] = [
    "{}",
    "}{",
    "{",
    "}",
    "{a}b}",
    "{{a}}",
    "{0}",
    "{0}:a",
    "}f:a",
    "a",
    "a:",
    ":a",
    "a:f",
    "f:a",
    "fa",
    "af",
    "q:a",
    "w:a",
    "r:a",
    "dlock:{0}:a",
    "*",
    "a b?[c]\\",
];

async fn meet_nobody(client: &DynBackend, names: &[LockName]) -> Verdict {
    let held: Vec<_> = names.iter().map(|name| exclusive(name.as_str())).collect();
    for request in &held {
        take(client, request).await?;
    }
    for request in &held {
        let state = client.inspect(&request.name).await?;
        assert_eq!(state.holders.len(), 1, "{}", request.name);
        assert_eq!(state.holders[0].claim, request.claim, "{}", request.name);
    }
    for request in &held {
        free(client, request).await?;
    }
    Ok(())
}

#[test]
fn all_kinds_of_locks_work_on_names_that_look_like_keys() {
    run(async {
        let (server, client) = start().await?;
        let other = crate::support::connect(&server.url()).await?;
        for name in NAMES {
            works_fully(&client, &other, name).await?;
        }
        Ok(())
    })
}

#[test]
fn no_two_names_meet() {
    run(async {
        let (_server, client) = start().await?;
        meet_nobody(&client, &NAMES.map(name)).await
    })
}

#[test]
fn the_longest_names_differ_in_their_last_byte() {
    run(async {
        let (server, client) = start().await?;
        let other = crate::support::connect(&server.url()).await?;
        let long = |last: &str| name(&format!("{}{last}", "x".repeat(512 - last.len())));
        let names = [long("a"), long("b"), long("é"), long("}"), long("f")];
        meet_nobody(&client, &names).await?;
        // Room for the second name of a multi-lock.
        works_fully(&client, &other, &names[0].as_str()[1..]).await
    })
}
