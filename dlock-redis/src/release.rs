//! Releasing or cancelling claims, now and later: see [`deferred_releases`](crate::deferred_releases).
//!
//! A claim in the list of its server stays there until a release was answered, or its lease has
//! ended. If this process exits first, the lease frees the lock.

use std::{ops::Range, sync::Arc, time::Duration};

use dlock_core::{Backoff, ClaimId, Clock, Error, Instant, LockName};
use futures_util::{StreamExt, stream};

use crate::{
    deferred_releases::{DeferredRelease, RETRIED_FOR},
    session::Session,
    unanswered::LateAcquires,
};

/// The pause between two rounds of retries.
const AGAIN: Duration = Duration::from_millis(200);
/// The number of releases under way at a time.
const AT_ONCE: usize = 16;

/// A server to which releases may have to be sent later.
pub(crate) trait ReleaseTarget: Send + Sync + 'static {
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
pub(crate) async fn release(
    server: &Arc<impl ReleaseTarget>,
    name: &LockName,
    claim: ClaimId,
    used: u32,
) -> Result<bool, Error> {
    let found = server.send_release(name, claim, used).await?;
    claim_ended(server, name, claim);
    Ok(found)
}

/// Handles a claim that has ended and that the server does not know. If an acquire of it may still
/// arrive, it is released again, at last after the deadline of that acquire.
pub(crate) fn claim_ended(server: &Arc<impl ReleaseTarget>, name: &LockName, claim: ClaimId) {
    if let Some(LateAcquires { until, is_take }) = server.session().unanswered.take(claim) {
        let from = if is_take { Clock::Boot.now() } else { until };
        release_later(server, name, claim, 0, from..until, until.saturating_add(RETRIED_FOR));
    }
}

/// Releases a claim as soon as the server answers, after the start of `when`, and before its lease has
/// ended; and repeats it until the end of `when`.
pub(crate) fn release_later(
    server: &Arc<impl ReleaseTarget>,
    name: &LockName,
    claim: ClaimId,
    used: u32,
    when: Range<Instant>,
    lease_ends: Instant,
) {
    let now = Clock::Boot.now();
    let until = lease_ends.min(now.max(when.end).saturating_add(RETRIED_FOR));
    let deferred =
        DeferredRelease { name: name.clone(), used, from: when.start, last: when.end, until };
    if server.session().deferred.add(claim, deferred, now) {
        spawn(send_deferred(Arc::clone(server)));
    }
}

async fn send_deferred(server: Arc<impl ReleaseTarget>) {
    let deferred = &server.session().deferred;
    let mut backoff = Backoff::between(AGAIN, AGAIN);
    loop {
        backoff.wait().await;
        // Taken before the releases are sent: `is_answered` compares it with a `from` that may move.
        let now = Clock::Boot.now();
        // `any_left` and `add` decide under one lock whether a task runs. So no claim is added to a
        // list whose task has just ended.
        if !deferred.any_left(now) {
            return;
        }
        if !server.session().is_up() {
            continue;
        }
        let claims = deferred.due(now).into_iter().map(|(claim, deferred)| {
            let server = &server;
            async move { (claim, release(server, &deferred.name, claim, deferred.used).await) }
        });
        let mut releasing = stream::iter(claims).buffer_unordered(AT_ONCE);
        while let Some((claim, answer)) = releasing.next().await {
            // The server is unreachable again. The rest waits for the next round.
            if answer.is_err_and(|error| error.is_transient()) {
                break;
            }
            deferred.is_answered(claim, now);
        }
    }
}

/// Runs work in the background.
pub(crate) fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    // Outside of a runtime the work is dropped, and the lease of the claim frees the lock.
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(work);
    }
}
