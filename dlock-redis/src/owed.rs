//! Giving claims up, now and later: see [`later`](crate::later).

use std::{sync::Arc, time::Duration};

use dlock_core::{ClaimId, Clock, Error, Instant, LockName};
use futures_util::{StreamExt, stream};

use crate::{
    later::{GivenUp, LATER},
    session::Session,
};

/// How often it is tried to tell a server.
const AGAIN: Duration = Duration::from_millis(200);
/// How many are sent at a time.
const AT_ONCE: usize = 16;

/// A server that may have to be told later.
pub(crate) trait Owed: Send + Sync + 'static {
    fn session(&self) -> &Session;

    /// Sends a release; whether the claim was there.
    fn send_release(
        &self,
        name: &LockName,
        claim: ClaimId,
        used: u32,
    ) -> impl Future<Output = Result<bool, Error>> + Send;
}

/// Gives a claim up; whether it was there.
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

/// The server does not know this claim, by which nothing is asked for any more. If an acquire of it may
/// still arrive, it is given up once more afterwards.
pub(crate) fn is_over(server: &Arc<impl Owed>, name: &LockName, claim: ClaimId) {
    if let Some(past) = server.session().unanswered.take(claim) {
        give_up_later(server, name, claim, 0, past, past.saturating_add(LATER));
    }
}

/// Gives a claim up as soon as the server answers, from a time on, but not once the lease has ended.
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
        let now = Clock::Boot.now();
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
            // It is away again.
            if answer.is_err_and(|error| error.is_transient()) {
                break;
            }
            later.is_done(claim, now);
        }
    }
}

/// Sees work through that nobody waits for.
pub(crate) fn background(work: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(work);
    }
}
