//! The keys of `tests/golden`: this version reads them, and writes the same.
//!
//! A line there is `KEY: VALUE`, with one lease for all.

use std::time::Duration;

use dlock_core::{AcquireRequest, Acquired, ClaimId, DynBackend, Mode, Note, Renewal, Renewed};
use dlock_testlab::{Stop, Verdict, etcd::EtcdServer};

use crate::support::{ask, connect, free, granted, queue, run, server, take, url};

const GOLDEN: &str = include_str!("../golden/format-1.txt");

/// The lease in the golden keys.
const LEASE: &str = "000000000000005e";

/// Each lock, the mode in which it is held, and the mode after a renewal.
fn locks() -> [(&'static str, Mode, Mode); 5] {
    let permits = |n| Mode::Permits { n, of: 5 };
    [
        ("downgraded", Mode::Exclusive, Mode::Shared),
        ("fewer", permits(4), permits(1)),
        ("held", Mode::Exclusive, Mode::Exclusive),
        ("permits", permits(2), permits(2)),
        ("read", Mode::Shared, Mode::Shared),
    ]
}

fn request(lock: &str, mode: Mode, claim: u128) -> AcquireRequest {
    let note = Note::new("web-3 pid 1").ok().filter(|_| matches!(lock, "downgraded" | "held"));
    let at = locks().iter().zip(1..).find(|((found, ..), _)| *found == lock).map(|(_, at)| at);
    ask(lock, mode)
        .with_lease(Duration::from_secs(60))
        .with_claim(ClaimId::from_bits(16 * at.unwrap_or(0) + claim))
        .with_note(note)
}

/// The mode of a claim that waits behind the holder, if there is one.
fn waiting(lock: &str) -> Option<Mode> {
    match lock {
        "held" | "read" => Some(Mode::Exclusive),
        "permits" => Some(Mode::Permits { n: 4, of: 5 }),
        _ => None,
    }
}

async fn dump(server: &EtcdServer) -> Result<String, Stop> {
    let mut text = String::new();
    for key in server.keys_under("/dlock/").await? {
        if !key.starts_with("/dlock/%") {
            let value = server.value(&key).await?.unwrap_or_default();
            let lease = key.len() - 32..key.len() - 16;
            let key = [&key[..lease.start], LEASE, &key[lease.end..]].concat();
            text.push_str(&format!("{key}: {value}\n"));
        }
    }
    Ok(text)
}

#[test]
fn golden_keys_are_written() {
    run(async {
        let server = server().await?;
        let client = connect(&url(&server)).await?;
        for (lock, mode, later) in locks() {
            let held = request(lock, mode, 1);
            take(&client, &held).await?;
            if later != mode {
                let weaker = Renewal::new(held.as_claim(), later, held.lease);
                assert_eq!(client.renew(&[weaker]).await?, [Renewed::Kept]);
            }
            if let Some(mode) = waiting(lock) {
                queue(&client, &request(lock, mode, 2)).await?;
            }
        }
        assert_eq!(dump(&server).await?, GOLDEN);
        Ok(())
    });
}

#[test]
fn golden_keys_are_read() {
    run(async {
        let server = server().await?;
        let client = connect(&url(&server)).await?;
        let mut lines: Vec<_> = GOLDEN.lines().collect();
        // The holders, whose keys end with 0, before the waiters.
        lines.sort_by_key(|line| line.split_once(": ").and_then(|(key, _)| key.chars().last()));
        for line in lines {
            let (key, value) = line.split_once(": ").ok_or("a value")?;
            server.put(key, value).await?;
        }
        for (lock, _, mode) in locks() {
            are_read(&client, lock, mode).await?;
        }
        Ok(())
    });
}

async fn are_read(client: &DynBackend, lock: &str, mode: Mode) -> Verdict {
    let held = request(lock, mode, 1);
    let state = client.inspect(&held.name).await?;
    let holder = &state.holders[0];
    assert_eq!((holder.claim, holder.mode), (held.claim, mode), "{lock}");
    assert_eq!(holder.note, held.note, "{lock}");
    assert_eq!(state.waiters.first().map(|waiter| waiter.mode), waiting(lock), "{lock}");
    // Other claims wait behind them, and can revoke them.
    let next = match mode {
        Mode::Permits { of, .. } => Mode::Permits { n: of, of },
        _ => Mode::Exclusive,
    };
    let next = request(lock, next, 3);
    assert_eq!(client.acquire(&next).await?, Acquired::Queued, "{lock}");
    for claim in state.holders.iter().chain(&state.waiters) {
        free(client, &ask(lock, mode).with_claim(claim.claim)).await?;
    }
    granted(client, &next).await?;
    free(client, &next).await
}
