//! Parts of backends for stores with sessions.
//!
//! Some stores, such as ZooKeeper, etcd and Consul, have no lease for each claim. The client opens a
//! session, all its claims end with that, and the client itself ends a claim that is not renewed. The
//! bookkeeping of that is the same for all of them:
//!
//! - [`Life`]: the lease and the state of one claim. A backend's claim adds its place in the store,
//!   and dereferences to this.
//! - [`SessionBase`]: one session, with its claims, its last beat and its end. It also runs requests to
//!   their end if their callers go away. A backend's session dereferences to this.
//! - [`Sessions`]: the current session, and the task that opens the next one. For this, a backend's
//!   session implements [`StoreSession`].
//! - [`guarantees`]: the guarantees of such a store.
//! - [`for_now`]: the error for a right that was there before.
//!
//! If the store refuses to delete the key of a claim, [`SessionBase::defer_deletion`] keeps the
//! claim, and repeats the deletion: no claim is forgotten whose key may exist.
//!
//! The backend adds what is special: the requests, the proof that the store keeps the session (a
//! *beat*), the queue, and the service of a session, which calls [`SessionBase::lapse`].
//!
//! ```
//! use std::{ops::Deref, time::Duration};
//! use dlock_core::{
//!     AcquireRequest, Clock, Error, ErrorKind, FencingToken, LockName, Mode, StoreEventSender,
//!     session::{SessionBase, Life},
//! };
//!
//! /// A claim, and the key that it has in the store.
//! struct OwnClaim {
//!     life: Life,
//!     key: String,
//! }
//!
//! impl Deref for OwnClaim {
//!     type Target = Life;
//!
//!     fn deref(&self) -> &Life {
//!         &self.life
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
//! let no_answer = || Error::new(ErrorKind::Unavailable, "no answer in time");
//! let began = Clock::Boot.now();
//! let runtime = dlock_core::current_runtime()?;
//! let events = StoreEventSender::new(16);
//! let session = SessionBase::new(began, events, runtime, Duration::from_secs(5), no_answer);
//!
//! let lease = Duration::from_secs(10);
//! let request = AcquireRequest::new(LockName::new("report")?, Mode::Exclusive, lease);
//! let new = || OwnClaim { life: Life::new(&request, 1), key: "/locks/report/7".to_owned() };
//! let claim = session.claim_of(&request, new);
//! // The store has created the key, and no other is before it.
//! let token = FencingToken::new(7)?;
//! let (grant, _) = claim.grant(token, began).expect("it was not released meanwhile");
//! session.granted(&claim);
//! assert_eq!(grant.token, token);
//! assert_eq!(claim.key, "/locks/report/7");
//!
//! // The session has ended in the store.
//! session.end();
//! assert!(claim.is_over());
//! # Ok(()) }
//! ```

mod base;
mod current;
mod deferred_deletions;
mod life;

pub use base::SessionBase;
pub use current::{Sessions, StoreSession};
pub use life::{KeptAlive, Life};

use crate::{
    ConfigIssue, Error, ErrorKind, Exclusion, Fairness, Fencing, Guarantees, Notes, OrphanRelease,
    Permits, Scope, WakeUp,
};

/// Returns the guarantees of a store with sessions whose servers agree by majority, and in which each
/// claim is a key. If the number of `voters` is unknown, give one.
pub fn guarantees(voters: usize) -> Guarantees {
    // With several voters, a majority keeps the data if one of them fails.
    let exclusion = if voters > 1 { Exclusion::Failover } else { Exclusion::Restart };
    Guarantees::WEAKEST
        .with_exclusion(exclusion)
        .with_fencing(Fencing::Durable)
        .with_orphan_release(OrphanRelease::SessionEnd)
        .with_fairness(Fairness::Fifo)
        .with_wake_up(WakeUp::Push)
        .with_scope(Scope::Network)
        .with_permits(Permits::Counted)
        .with_notes(Notes::Kept)
}

/// Returns the error of a request that the store has accepted before from the same client, such as
/// the login of an earlier session. A right that is missing now may come back, for example when a role
/// is edited. So `Config(Access)` becomes `Unavailable`, after which callers try again.
pub fn for_now(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Config(ConfigIssue::Access) => {
            Error::new(ErrorKind::Unavailable, error.to_string())
                .with_certainty(error.certainty())
                .with_source(error)
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests;
