//! A client that writes the newest format beside one that writes the format before it, on every
//! database.

use std::{fmt::Debug, time::Duration};

use dlock_core::{
    AcquireRequest, Acquired, DynBackend, FencingToken, Format, LockName, Mode, Note, Released,
    Renewal, Renewed,
};
use dlock_testlab::{Stop, Verdict};
use tokio::time::timeout;

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

/// This many renewals fold the row of a lock.
const MANY: usize = 40;

/// Lets both clients use the same locks. `old` writes format 1, and `new` the newest format.
pub(crate) async fn share_locks(old: &DynBackend, new: &DynBackend) -> Verdict {
    let sides = [(old, Format::OLDEST), (new, Format::NEWEST)];
    for [(first, format), (second, other)] in [sides, [sides[1], sides[0]]] {
        for mode in [Mode::Exclusive, Mode::Shared, Mode::Permits { n: 2, of: 3 }] {
            let wanted = if mode == Mode::Shared { Mode::Exclusive } else { mode };
            let (held, waiting) = (request("a", mode), request("a", wanted));
            let token = take(first, &held).await?;
            is(second.acquire(&waiting).await?, |acquired| *acquired == Acquired::Queued)?;
            for client in [first, second] {
                let state = client.inspect(&held.name).await?;
                is(state.holders[0].clone(), |holder| holder.format == format)?;
                is(state.holders[0].clone(), |holder| holder.note == held.note)?;
                is(state.waiters[0].clone(), |waiter| waiter.format == other)?;
                is(state.waiters[0].clone(), |waiter| waiter.note == held.note)?;
            }
            keep(first, &held).await?;
            free(first, &held).await?;
            let grant = timeout(LONG, second.granted(&waiting)).await??;
            is(grant.token, |next| *next > token)?;
            for _ in 0..MANY {
                keep(second, &waiting).await?;
            }
            let state = first.inspect(&held.name).await?;
            is(state.holders[0].clone(), |holder| holder.format == other)?;
            free(second, &waiting).await?;
        }
        let both = [request("a", Mode::Exclusive), request("b", Mode::Exclusive)];
        first.acquire_all(&both).ok_or("it takes several at once")?.await?;
        for held in &both {
            is(second.inspect(&held.name).await?, |state| state.holders[0].format == format)?;
            free(first, held).await?;
        }
    }
    Ok(())
}

/// A client of format 1 renews and hands off the claims that a client of the newest format has left.
pub(crate) async fn survive_a_downgrade(old: &DynBackend, new: DynBackend) -> Verdict {
    let (held, waiting) = (request("down", Mode::Exclusive), request("down", Mode::Exclusive));
    let token = take(&new, &held).await?;
    is(new.acquire(&waiting).await?, |acquired| *acquired == Acquired::Queued)?;
    drop(new);
    for _ in 0..MANY {
        keep(old, &held).await?;
    }
    let state = old.inspect(&held.name).await?;
    is(state.holders[0].clone(), |holder| holder.claim == held.claim)?;
    is(state.waiters[0].clone(), |waiter| waiter.claim == waiting.claim)?;
    free(old, &held).await?;
    is(take(old, &waiting).await?, |next| *next > token)?;
    free(old, &waiting).await?;
    // A few uses of the lock fold the row again, without the claims of the newest format.
    for _ in 0..3 {
        let next = request("down", Mode::Exclusive);
        take(old, &next).await?;
        free(old, &next).await?;
    }
    Ok(())
}

fn request(name: &str, mode: Mode) -> AcquireRequest {
    let name = LockName::new(name).expect("a name");
    AcquireRequest::new(name, mode, Duration::from_secs(30))
        .with_note(Note::new("web-3 pid 1").ok())
}

async fn take(client: &DynBackend, request: &AcquireRequest) -> Result<FencingToken, Stop> {
    match client.acquire(request).await? {
        Acquired::Granted(grant) => Ok(grant.token),
        other => Err(Stop::failed(format!("{} is {other:?}", request.name))),
    }
}

async fn keep(client: &DynBackend, request: &AcquireRequest) -> Verdict {
    let renewal = Renewal::new(request.as_claim(), request.mode, request.lease);
    is(client.renew(&[renewal]).await?, |renewed| *renewed == [Renewed::Kept])
}

async fn free(client: &DynBackend, request: &AcquireRequest) -> Verdict {
    let released = client.release(&request.as_claim().with_used(1)).await?;
    is(released, |released| *released == Released::Released)
}

#[track_caller]
fn is<T: Debug>(answer: T, right: impl Fn(&T) -> bool) -> Verdict {
    let at = std::panic::Location::caller();
    if right(&answer) { Ok(()) } else { Err(Stop::failed(format!("{at}: {answer:?}"))) }
}
