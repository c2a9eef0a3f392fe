//! Rows of a later format, rows of another program, and rows that were cut off, on every database:
//! the error names the problem, and the row stays unchanged.

use std::{fmt::Debug, time::Duration};

use dlock_core::{
    AcquireRequest, Acquired, DynBackend, Error, ErrorKind, FencingToken, LockName, Mode, Queue,
    Released, Renewal, Renewed,
};
use dlock_testlab::{Stop, Verdict};
use tokio::time::timeout;

const LATER: &str = "has format 9, and this program reads format";
const NOT_OURS: &str = "no version of dlock writes";

/// A snapshot, a log, and a text that the error must contain.
const ROWS: [(&str, &str, &str); 6] = [
    ("v9 1 1;", "", LATER),
    ("v9 1 1;", "Z 1 2;", LATER),
    ("v1 5 1073741824;00000000000000000000", "", NOT_OURS),
    ("", "A 00000000000000000000000000000001 = 10737", NOT_OURS),
    ("theirs", "", NOT_OURS),
    ("theirs;", "theirs;", NOT_OURS),
];

/// Longer than these tests take.
const LONG: Duration = Duration::from_secs(60);

/// Tries every verb on these rows. `run` runs a statement, and `row` returns the row of `a`.
pub(crate) async fn fail_and_stay_unchanged(
    client: &DynBackend,
    run: impl AsyncFn(String) -> Verdict,
    row: impl AsyncFn() -> Result<String, Stop>,
) -> Verdict {
    for (snap, log, says) in ROWS {
        let (held, waiting) = (request("a"), request("a").with_lease(Duration::from_secs(3)));
        is(client.acquire(&held).await?, |acquired| matches!(acquired, Acquired::Granted(_)))?;
        is(client.acquire(&waiting).await?, |acquired| *acquired == Acquired::Queued)?;
        let set = format!("base = base + 1, snap = '{snap}', log = '{log}'");
        run(format!("UPDATE dlock_lock SET {set} WHERE name = 'a'")).await?;
        let before = row().await?;
        let shared = request("a").with_mode(Mode::Shared);
        for request in [request("a"), request("a").with_queue(Queue::FailIfBusy), shared] {
            fails(says, client.acquire(&request).await)?;
        }
        let both = [request("a"), request("b")];
        fails(says, client.acquire_all(&both).ok_or("it takes several at once")?.await)?;
        fails(says, client.renew(&[renewal(&held)]).await)?;
        fails(says, timeout(LONG, client.granted(&waiting)).await?)?;
        fails(says, client.inspect(&held.name).await)?;
        let admin = client.admin().ok_or("it has one")?;
        fails(says, admin.raise_tokens(&held.name, FencingToken::new(1 << 52)?).await)?;
        // The holder, a waiter, and an operator release it.
        for claim in [held.as_claim().with_used(1), waiting.as_claim(), held.as_claim()] {
            fails(says, client.release(&claim).await)?;
        }
        assert_eq!(row().await?, before, "{snap:?} {log:?}");
        // Another lock is not affected.
        let good = request("c");
        is(client.acquire(&good).await?, |acquired| matches!(acquired, Acquired::Granted(_)))?;
        let renewed = client.renew(&[renewal(&held), renewal(&good)]).await?;
        assert_eq!(renewed, [Renewed::Unknown, Renewed::Kept]);
        is(client.release(&good.as_claim()).await?, |released| *released == Released::Released)?;
        assert_eq!(row().await?, before, "{snap:?} {log:?}");
        run("DELETE FROM dlock_lock".to_owned()).await?;
    }
    Ok(())
}

/// Changes of a row with a long snapshot, and a text that the error must contain. Each snapshot has
/// a new base, as the rows of every version of dlock do.
pub(crate) const CHANGES: [(&str, &str); 3] = [
    ("base = base + 1, snap = REPLACE(snap, 'v1 ', 'v9 ')", LATER),
    ("base = base + 1, snap = SUBSTR(snap, 1, LENGTH(snap) - 1)", NOT_OURS),
    ("base = base + 1, snap = REPLACE(snap, 'v1 ', 'theirs ')", NOT_OURS),
];

/// Changes a row whose snapshot the client knows, and then tries every verb that writes. `run` runs
/// a statement, and `row` returns the row of `a`.
pub(crate) async fn fail_where_the_client_knows_another(
    client: &DynBackend,
    changes: &[(&str, &str)],
    run: impl AsyncFn(String) -> Verdict,
    row: impl AsyncFn() -> Result<String, Stop>,
) -> Verdict {
    for (change, says) in changes {
        let (held, good) = (request("a"), request("c"));
        for request in [&held, &good] {
            is(client.acquire(request).await?, |acquired| {
                matches!(acquired, Acquired::Granted(_))
            })?;
        }
        // So many claims that a client remembers the snapshot.
        let waiting: Vec<_> = (0..24).map(|_| request("a")).collect();
        for request in &waiting {
            is(client.acquire(request).await?, |acquired| *acquired == Acquired::Queued)?;
        }
        is(client.renew(&[renewal(&held)]).await?, |renewed| *renewed == [Renewed::Kept])?;
        let known = row().await?;
        assert!(known.len() > 1500, "{known}");
        run(format!("UPDATE dlock_lock SET {change} WHERE name = 'a'")).await?;
        let before = row().await?;
        assert_ne!(before, known);
        fails(says, client.acquire(&request("a")).await)?;
        let both = [request("a"), request("b")];
        fails(says, client.acquire_all(&both).ok_or("it takes several at once")?.await)?;
        fails(says, client.renew(&[renewal(&held)]).await)?;
        let renewed = client.renew(&[renewal(&held), renewal(&good)]).await?;
        assert_eq!(renewed, [Renewed::Unknown, Renewed::Kept], "{change}");
        for claim in [held.as_claim().with_used(1), waiting[0].as_claim()] {
            fails(says, client.release(&claim).await)?;
        }
        assert_eq!(row().await?, before, "{change}");
        run("DELETE FROM dlock_lock".to_owned()).await?;
    }
    Ok(())
}

fn request(name: &str) -> AcquireRequest {
    let name = LockName::new(name).expect("a name");
    AcquireRequest::new(name, Mode::Exclusive, Duration::from_secs(30))
}

fn renewal(request: &AcquireRequest) -> Renewal {
    Renewal::new(request.as_claim(), request.mode, request.lease)
}

#[track_caller]
fn is<T: Debug>(answer: T, right: impl Fn(&T) -> bool) -> Verdict {
    if right(&answer) { Ok(()) } else { Err(Stop::failed(format!("{answer:?}"))) }
}

#[track_caller]
fn fails<T: Debug>(says: &str, answer: Result<T, Error>) -> Verdict {
    match answer {
        Err(error) if error.kind() == ErrorKind::Protocol && error.to_string().contains(says) => {
            Ok(())
        }
        answer => Err(Stop::failed(format!("{says:?} is not in {answer:?}"))),
    }
}
