//! Releasing or cancelling claims, now and later: see [`later`](crate::later).
//!
//! A claim in the list of its server stays there until a release was answered, or its lease has
//! ended. If this process exits first, the lease frees the lock.

use std::{sync::Arc, time::Duration};

use dlock_core::{ClaimId, Clock, Error, Instant, LockName};
use futures_util::{StreamExt, stream};

use crate::{
    later::{GivenUp, LATER},
    session::Session,
};

/// The pause between two rounds of retries.
const AGAIN: Duration = Duration::from_millis(200);
/// The number of releases under way at a time.
const AT_ONCE: usize = 16;

/// A server to which releases may have to be sent later.
pub(crate) trait Owed: Send + Sync + 'static {
    fn session(&self) -> &Session;

    /// Sends a release. True if the claim was there.
    fn send_release(
        &self,
        name: &LockName,
        claim: ClaimId,
        used: u32,
    ) -> impl Future<Output = Result<bool, Error>> + Send;
}

/// Releases or cancels a claim. Returns true if it was there.
pub(crate) async fn give_up(
    server: &Arc<impl Owed>,
    name: &LockName,
    claim: ClaimId,
    used: u32,
) -> Result<bool, Error> {
    let found = server.send_release(name, claim, used).await?;
    is_over(server, name, claim);
    Ok(found)
}

/// Handles a claim that has ended and that the server does not know. If an acquire of it may still
/// arrive, it is released once more after the deadline of that acquire.
pub(crate) fn is_over(server: &Arc<impl Owed>, name: &LockName, claim: ClaimId) {
    if let Some(past) = server.session().unanswered.take(claim) {
        give_up_later(server, name, claim, 0, past, past.saturating_add(LATER));
    }
}

/// Releases a claim as soon as the server answers, after `from`, and before its lease has ended.
pub(crate) fn give_up_later(
    server: &Arc<impl Owed>,
    name: &LockName,
    claim: ClaimId,
    used: u32,
    from: Instant,
    lease_ends: Instant,
) {
    let now = Clock::Boot.now();
    let until = lease_ends.min(now.max(from).saturating_add(LATER));
    let given_up = GivenUp { name: name.clone(), used, from, until };
    if server.session().later.add(claim, given_up, now) {
        background(see_to(Arc::clone(server)));
    }
}

async fn see_to(server: Arc<impl Owed>) {
    let later = &server.session().later;
    loop {
        tokio::time::sleep(AGAIN.mul_f64(rand::random_range(0.5..1.0))).await;
        // Taken before the releases are sent: `is_done` compares it with a `from` that may move.
        let now = Clock::Boot.now();
        // `are_left` and `add` decide under one lock whether a task runs. So no claim is added to a
        // list whose task has just ended.
        if !later.are_left(now) {
            return;
        }
        if !server.session().is_up() {
            continue;
        }
        let claims = later.due(now).into_iter().map(|(claim, given_up)| {
            let server = &server;
            async move { (claim, give_up(server, &given_up.name, claim, given_up.used).await) }
        });
        let mut releasing = stream::iter(claims).buffer_unordered(AT_ONCE);
        while let Some((claim, answer)) = releasing.next().await {
            // The server is unreachable again. The rest waits for the next round.
            if answer.is_err_and(|error| error.is_transient()) {
                break;
            }
            later.is_done(claim, now);
        }
    }
}

/// Runs work in the background.
pub(crate) fn background(work: impl Future<Output = ()> + Send + 'static) {
    // Outside of a runtime the work is dropped, and the lease of the claim frees the lock.
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(work);
    }
}
