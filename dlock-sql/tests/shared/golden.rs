//! The rows of `tests/golden`, on every database: this version reads them, and writes the same.
//!
//! A row there is `NAME|SNAP|LOG`. Times and tokens are `T`, and the address of a waiter is `HOME`.
//! `snapshot.txt` has a snapshot, with times in the year 2100.

use std::{fmt::Debug, time::Duration};

use dlock_core::{
    AcquireRequest, Acquired, ClaimId, DynBackend, FencingToken, LockName, Mode, Note, Released,
    Renewal, Renewed,
};
use dlock_testlab::{Stop, Verdict};

/// A time in the year 2100, so that no lease of a golden row has ended.
const LATE: u64 = 4_102_444_800_000_000;

/// Deletes all rows.
const NONE: &str = "DELETE FROM dlock_lock";

const HOLDER: u128 = 1;
const WAITER: u128 = 2;
const BARRED: u128 = 3;

/// Checks that a client writes the golden rows, and that another one reads them and the golden
/// snapshot. Leaves no rows.
pub(crate) async fn written_and_read(
    writer: &DynBackend,
    reader: &DynBackend,
    golden: &str,
    rows: impl AsyncFn() -> Result<Vec<Vec<String>>, Stop>,
    run: impl AsyncFn(String) -> Verdict + Copy,
) -> Verdict {
    write(writer).await?;
    let rows = rows().await?;
    let rows = rows.iter().map(|row| masked(&row[0], &row[1], &row[2]));
    assert_eq!(rows.collect::<String>(), golden);
    run(NONE.to_owned()).await?;
    read(reader, golden, run).await?;
    read_snapshot(reader, run).await?;
    run(NONE.to_owned()).await
}

/// Writes the golden rows.
async fn write(client: &DynBackend) -> Verdict {
    for (name, mode) in locks() {
        let held = request(name, mode, HOLDER);
        is(client.acquire(&held).await?, |acquired| matches!(acquired, Acquired::Granted(_)))?;
        match name {
            "free" => {
                let claim = held.as_claim().with_used(1);
                is(client.release(&claim).await?, |released| *released == Released::Released)?;
            }
            "raised" => {
                let above = FencingToken::new(5)?;
                client.admin().ok_or("it has one")?.raise_tokens(&held.name, above).await?;
            }
            "renewed" => {
                let renewal = Renewal::new(held.as_claim(), held.mode, held.lease);
                is(client.renew(&[renewal]).await?, |renewed| *renewed == [Renewed::Kept])?;
            }
            "waited" => {
                let waiting = waiting(name);
                is(client.acquire(&waiting).await?, |acquired| *acquired == Acquired::Queued)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Reads the golden rows. `run` runs a statement.
async fn read(client: &DynBackend, golden: &str, run: impl AsyncFn(String) -> Verdict) -> Verdict {
    for line in golden.lines() {
        let row = line.replace("HOME", "0");
        let mut parts = row.splitn(3, '|');
        let (name, snap, log) = (parts.next(), parts.next(), parts.next());
        let (name, log) = (name.ok_or("a name")?, log.ok_or("a log")?);
        let [snap, log] = [snap.ok_or("a snapshot")?, log]
            .map(|text| text.replace("T ", &format!("{LATE} ")).replace("T;", &format!("{LATE};")));
        run(insert(name, &snap, &log)).await?;
    }
    for (name, mode) in locks() {
        let held = request(name, mode, HOLDER);
        let state = client.inspect(&held.name).await?;
        if name == "free" {
            is(state.clone(), |state| state.is_free() && state.last_token.is_some())?;
        } else {
            is(state.holders[0].clone(), |holder| holder.claim == held.claim)?;
            is(state.holders[0].clone(), |holder| holder.note == held.note)?;
            is(state.holders[0].clone(), |holder| holder.mode == held.mode)?;
            let renewal = Renewal::new(held.as_claim(), held.mode, held.lease);
            is(client.renew(&[renewal]).await?, |renewed| *renewed == [Renewed::Kept])?;
            let released = client.release(&held.as_claim().with_used(held.tokens)).await?;
            is(released, |released| *released == Released::Released)?;
        }
        // Tokens continue, for the waiter and for later claims.
        match client.acquire(&waiting(name)).await? {
            Acquired::Granted(grant) if Some(grant.token) > state.last_token => {}
            other => return Err(Stop::failed(format!("{name}: {other:?} after {state:?}"))),
        }
        is(state.waiters.clone(), |waiters| waiters.len() == usize::from(name == "waited"))?;
    }
    Ok(())
}

/// Reads a row with a snapshot, which has a holder, a waiter and a released claim that may not
/// return. `run` runs a statement.
async fn read_snapshot(client: &DynBackend, run: impl AsyncFn(String) -> Verdict) -> Verdict {
    let name = "snapshot";
    run(insert(name, include_str!("../golden/snapshot.txt").trim_end(), "")).await?;
    let lock = LockName::new(name)?;
    let request = |mode, claim| {
        AcquireRequest::new(lock.clone(), mode, Duration::from_secs(30))
            .with_claim(ClaimId::from_bits(claim))
            .with_tokens(7)
    };
    let (held, waiting) = (request(Mode::Exclusive, HOLDER), request(Mode::Shared, WAITER));
    let state = client.inspect(&lock).await?;
    for (claims, of) in [(&state.holders, &held), (&state.waiters, &waiting)] {
        let claims: Vec<_> = claims.iter().map(|claim| (claim.claim, claim.mode)).collect();
        is(claims, |claims| *claims == [(of.claim, of.mode)])?;
    }
    is(state.holders[0].note.clone(), |note| *note == Note::new("web-3 pid 1").ok())?;
    let barred = client.acquire(&request(Mode::Exclusive, BARRED)).await;
    is(barred, |barred| !matches!(barred, Ok(Acquired::Granted(_) | Acquired::Queued)))?;
    let renewal = Renewal::new(held.as_claim(), held.mode, held.lease);
    is(client.renew(&[renewal]).await?, |renewed| *renewed == [Renewed::Kept])?;
    let released = client.release(&held.as_claim().with_used(held.tokens)).await?;
    is(released, |released| *released == Released::Released)?;
    match client.acquire(&waiting).await? {
        Acquired::Granted(grant) if Some(grant.token) > state.last_token => Ok(()),
        other => Err(Stop::failed(format!("{name}: {other:?} after {state:?}"))),
    }
}

fn insert(name: &str, snap: &str, log: &str) -> String {
    format!(
        "INSERT INTO dlock_lock (name, base, seen, cut, snap, log) \
         VALUES ('{name}', {LATE}, 0, 0, '{snap}', '{log}')"
    )
}

/// Returns the row with a mask for the parts that differ between runs.
fn masked(name: &str, snap: &str, log: &str) -> String {
    let line = |line: &str| {
        let mut fields: Vec<&str> = line.split(' ').collect();
        let is_claim = matches!(fields.first(), Some(&"A" | &"J"));
        if let Some(home) = fields.get_mut(6).filter(|home| is_claim && **home != "0") {
            *home = "HOME";
        }
        for field in &mut fields {
            let is_number = field.bytes().all(|b| b.is_ascii_digit());
            if is_number && (16..20).contains(&field.len()) {
                *field = "T";
            }
        }
        fields.join(" ")
    };
    let lines = |text: &str| text.split(';').map(line).collect::<Vec<_>>().join(";");
    format!("{name}|{}|{}\n", lines(snap), lines(log))
}

/// Each lock, and the mode in which it is held.
fn locks() -> [(&'static str, Mode); 7] {
    let permits = Mode::Permits { n: 2, of: 5 };
    [
        ("free", Mode::Exclusive),
        ("held", Mode::Exclusive),
        ("permits", permits),
        ("raised", Mode::Exclusive),
        ("read", Mode::Shared),
        ("renewed", Mode::Exclusive),
        ("waited", Mode::Exclusive),
    ]
}

/// A reader, since on PostgreSQL the record of another mode depends on the age of the lock.
fn waiting(name: &str) -> AcquireRequest {
    let mode = if name == "waited" { Mode::Shared } else { Mode::Exclusive };
    request(name, mode, WAITER)
}

/// Each claim has its own id.
fn id(lock: &str, claim: u128) -> ClaimId {
    let at = locks().iter().zip(1..).find(|((found, _), _)| *found == lock).map(|(_, at)| at);
    ClaimId::from_bits(16 * at.unwrap_or(0) + claim)
}

fn request(name: &str, mode: Mode, claim: u128) -> AcquireRequest {
    let lock = LockName::new(name).expect("a name");
    let note = Note::new("web-3 pid 1").ok().filter(|_| name == "held");
    AcquireRequest::new(lock, mode, Duration::from_secs(30))
        .with_claim(id(name, claim))
        .with_tokens(if name == "read" { 3 } else { 1 })
        .with_note(note)
}

#[track_caller]
fn is<T: Debug>(answer: T, right: impl Fn(&T) -> bool) -> Verdict {
    if right(&answer) { Ok(()) } else { Err(Stop::failed(format!("{answer:?}"))) }
}
