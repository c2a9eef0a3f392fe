//! The nodes of `tests/golden`: this version reads them, and writes the same.
//!
//! A line there is `PATH: DATA`. `T` is the number of a transaction.

use std::time::Duration;

use dlock_core::{AcquireRequest, Acquired, ClaimId, DynBackend, Mode, Note, Renewal, Renewed};
use dlock_testlab::{Stop, Verdict, zookeeper::ZooKeeperServer};

use crate::support::{ask, connect, free, granted, queue, run, start, take, until, url, works};

const GOLDEN: &str = include_str!("../golden/format-1.txt");

const HOLDER: u128 = 1;
const WAITER: u128 = 2;

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

/// Each claim has its own id.
fn id(lock: &str, claim: u128) -> ClaimId {
    let at = locks().iter().zip(1..).find(|((found, ..), _)| *found == lock).map(|(_, at)| at);
    ClaimId::from_bits(16 * at.unwrap_or(0) + claim)
}

fn request(lock: &str, mode: Mode, claim: u128) -> AcquireRequest {
    let note = Note::new("web-3 pid 1").ok().filter(|_| matches!(lock, "downgraded" | "held"));
    ask(lock, mode).with_lease(Duration::from_secs(60)).with_claim(id(lock, claim)).with_note(note)
}

/// Writes the golden nodes.
async fn write(client: &DynBackend) -> Verdict {
    for (lock, mode, later) in locks() {
        let held = request(lock, mode, HOLDER);
        take(client, &held).await?;
        if later != mode {
            let weaker = Renewal::new(held.as_claim(), later, held.lease);
            assert_eq!(client.renew(&[weaker]).await?, [Renewed::Kept]);
        }
        let waiting = match lock {
            "permits" => Mode::Permits { n: 4, of: 5 },
            _ => Mode::Exclusive,
        };
        if matches!(lock, "held" | "permits" | "read") {
            queue(client, &request(lock, waiting, WAITER)).await?;
        }
    }
    // Permits that were granted after a wait.
    free(client, &request("permits", Mode::Permits { n: 2, of: 5 }, HOLDER)).await?;
    granted(client, &request("permits", Mode::Permits { n: 4, of: 5 }, WAITER)).await?;
    Ok(())
}

fn masked(path: &str) -> String {
    match path.split_once("-since-") {
        Some((before, behind)) => {
            let (_, number) = behind.split_once('-').unwrap_or_default();
            format!("{before}-since-T-{number}")
        }
        None => path.to_owned(),
    }
}

async fn dump(server: &ZooKeeperServer) -> Result<String, Stop> {
    let mut text = String::new();
    for (lock, ..) in locks() {
        let mut nodes = server.nodes_under(&format!("/dlock/{lock}")).await?;
        nodes.sort();
        for node in nodes {
            let data = server.data(&node).await?.unwrap_or_default();
            text.push_str(&format!("{}: {}\n", masked(&node), String::from_utf8(data)?));
        }
    }
    Ok(text)
}

#[test]
fn golden_nodes_are_written() {
    run(async {
        let (server, client) = start().await?;
        write(&client).await?;
        let marks = GOLDEN.matches("granted").count();
        until("the grant is marked", async || {
            Ok(dump(&server).await?.matches("granted").count() == marks)
        })
        .await?;
        assert_eq!(dump(&server).await?, GOLDEN);
        Ok(())
    });
}

#[test]
fn golden_nodes_are_read() {
    run(async {
        let (server, client) = start().await?;
        works(&client, "other").await?;
        for (lock, ..) in locks() {
            let dir = format!("/dlock/{lock}");
            server.create(&dir, "").await?;
            // The server then gives later claims larger numbers than the golden ones.
            server.create(&format!("{dir}/x"), "").await?;
            server.delete_recursively(&format!("{dir}/x")).await?;
        }
        for line in GOLDEN.lines() {
            let (path, data) = line.split_once(": ").ok_or("data")?;
            server.create(&path.replace("-since-T-", "-since-7-"), data).await?;
        }
        let other = connect(&url(&server)).await?;
        for (lock, _, mode) in locks() {
            are_read(&client, &other, lock, mode).await?;
        }
        Ok(())
    });
}

async fn are_read(client: &DynBackend, other: &DynBackend, lock: &str, mode: Mode) -> Verdict {
    // The holder of this lock has released it, and the waiter holds the permits.
    let (claim, mode) = match lock {
        "permits" => (WAITER, Mode::Permits { n: 4, of: 5 }),
        _ => (HOLDER, mode),
    };
    let held = request(lock, mode, claim);
    let state = client.inspect(&held.name).await?;
    let holder = &state.holders[0];
    assert_eq!((holder.claim, holder.mode), (held.claim, mode), "{lock}");
    assert_eq!(holder.note, held.note, "{lock}");
    let waits = matches!(lock, "held" | "read");
    assert_eq!(state.waiters.len(), usize::from(waits), "{lock}");
    // Other claims wait behind them, and can remove them by force.
    let next = match mode {
        Mode::Permits { of, .. } => Mode::Permits { n: of, of },
        _ => Mode::Exclusive,
    };
    let next = request(lock, next, 3);
    assert_eq!(other.acquire(&next).await?, Acquired::Queued, "{lock}");
    for claim in state.holders.iter().chain(&state.waiters) {
        free(client, &ask(lock, mode).with_claim(claim.claim)).await?;
    }
    granted(other, &next).await?;
    free(other, &next).await
}
