//! The contract that a store fills.

use std::{fmt::Debug, sync::Arc, time::Duration};

use async_trait::async_trait;

use super::admin::NoAdmin;
use crate::{
    AcquireRequest, Acquired, Admin, Answer, Claim, Clock, Error, FencingToken, Finding, Grant,
    Guarantees, LockName, LockState, Released, Renewal, Renewed, StoreEvents,
};

/// A store of locks. This is all that a backend author writes; guards, renewal, time-outs,
/// cancellation, reentrancy, local hand-off and multi-locks are written once, in the core.
///
/// Seven methods are required: the five verbs ([`acquire`](Self::acquire),
/// [`granted`](Self::granted), [`renew`](Self::renew), [`release`](Self::release),
/// [`inspect`](Self::inspect)), [`store`](Self::store) and [`guarantees`](Self::guarantees). What
/// those who run the store ask of it is in [`Admin`], which is optional.
///
/// # Contract
/// - **One store, one order.** The operations on a name take effect one after another. Claims
///   are granted by the rule of [`Mode`](crate::Mode): the longest prefix of the queue that fits.
/// - **Idempotent by claim id.** Any verb may be sent again with the same
///   [`ClaimId`](crate::ClaimId) after an error or a lost answer, and has its effect once. Where claims belong to a session
///   ([`OrphanRelease::SessionEnd`](crate::OrphanRelease)), an acquire is sent again by the client
///   that sent it first; a release may come from any.
/// - **Leases end by the store's clock.** A claim that is not renewed for its `lease` is gone,
///   waiting or held, and the next one is granted. No wall clock of a client takes part. A store
///   whose clock has ticks makes every lease one tick longer, so that none ends early. Where
///   claims belong to a session, its client ends them by its monotonic clock, and the store ends
///   them with the session.
/// - **Tokens grow.** Every grant of a name carries tokens larger than every earlier grant's,
///   also after release, expiry, and removal of the name from the store.
/// - **Nothing stays.** When nobody holds or waits, the store's records of a name vanish in
///   bounded time.
///
/// # Errors
/// An error means *unknown*, never *no*. Its [`Certainty`](crate::Certainty) says whether the
/// operation may have taken effect. Transient faults that a resend cures are retried inside, by
/// claim id, for a bounded time. Requests are valid when they arrive: the core has checked names,
/// leases and permits.
///
/// # Cancel safety
/// [`acquire`](Self::acquire), [`acquire_all`](Self::acquire_all) and [`release`](Self::release)
/// are never dropped half-way. [`granted`](Self::granted), [`renew`](Self::renew) and
/// [`inspect`](Self::inspect) may be dropped at any await and must leave the client usable; the
/// core then releases, or asks again.
#[async_trait]
pub trait Backend: Send + Sync + Debug + 'static {
    /// Which store this is: its kind and address, without secrets, such as `sqlite:/var/x.db`.
    /// The same from every process. Stands in errors and traces, and orders the parts of a
    /// multi-lock that share a name.
    fn store(&self) -> &str;

    /// What this store, as connected and configured, promises.
    fn guarantees(&self) -> Guarantees;

    /// The clock by which the holders of this backend's grants measure their leases.
    fn clock(&self) -> Clock {
        Clock::Boot
    }

    /// Which part of the store keeps this name: a number that never changes, 0 where all names share
    /// one fate.
    ///
    /// Contract: names whose parts can be away on their own have different shards. The core never
    /// renews two shards with one call, so that one that does not answer takes no other's locks
    /// with it.
    fn shard(&self, name: &LockName) -> u32 {
        let _ = name;
        0
    }

    /// The longest lease that this store can stand for: what ends by itself when its holder falls
    /// silent, such as a session, ends no earlier. `Duration::MAX`, the default, where each claim
    /// has the lease that it asks for.
    ///
    /// Contract: the core asks for no longer lease, so that no holder believes for longer.
    fn longest_lease(&self) -> Duration {
        Duration::MAX
    }

    /// Whether this store can stand for a lease of this length.
    ///
    /// Contract: it asks nobody. The core calls it for every lease before it asks for one, also for
    /// what a [`Job`](crate::Job) leaves behind, and asks for none that is refused.
    ///
    /// Errors: `Config(Lease)` for a lease that the store, as it is configured, may forget. None, the
    /// default.
    fn check_lease(&self, lease: Duration) -> Result<(), Error> {
        let _ = lease;
        Ok(())
    }

    /// How long one request waits for its answer: a try waits no longer, whatever the store does
    /// inside to get one. `Duration::MAX`, the default, is as long as the verb takes.
    fn response_timeout(&self) -> Duration {
        Duration::MAX
    }

    /// What this client learns of the store unasked: see [`StoreEvent`](crate::StoreEvent).
    ///
    /// Contract: hints, so that a loss is told before the next renewal would tell it, and nobody
    /// believes in a lease that a clock has cut short. What an answer shows is told before the
    /// answer. Each call gives a receiver of its own; one that falls behind misses some. `None`, the
    /// default: only renewals tell. A store keeps a [`StoreEventSender`](crate::StoreEventSender) for
    /// them, or [`StoreClocks`](crate::StoreClocks).
    fn events(&self) -> Option<StoreEvents> {
        None
    }

    /// Takes the lock, or joins its queue, or (with [`Queue::FailIfBusy`](crate::Queue)) finds it
    /// busy.
    ///
    /// Contract: one round trip. Sent again for a claim that is in the store, it answers where
    /// that claim stands, and a waiting claim's lease starts anew. After `Queued` the core calls
    /// [`granted`](Self::granted) or [`release`](Self::release).
    fn acquire(&self, request: &AcquireRequest) -> Answer<Acquired>;

    /// Waits until a queued claim is granted, keeping its place in the queue alive.
    ///
    /// Contract: it must not depend on a message alone: with every notification lost it still
    /// answers within a bounded time after the grant. When the claim has vanished from the store
    /// (its waiting lease ended while this process was stopped), it does not join the queue anew:
    /// the error is `NotHeld`, and the core starts over.
    async fn granted(&self, request: &AcquireRequest) -> Result<Grant, Error>;

    /// Starts the leases of these claims anew, in as few round trips as the store allows.
    ///
    /// Contract: one answer for each renewal, in order. A claim that is gone is [`Renewed::Lost`],
    /// or [`Renewed::Forgotten`] where the store can tell, and is not taken again. What can't be
    /// told for one claim is [`Renewed::Unknown`], and no error for the others. A mode weaker
    /// than the held one is a downgrade: it takes effect at once and lets in the waiters that now
    /// fit. A stronger one is ignored: it is of a renewal that was on its way when the lock was
    /// downgraded.
    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, Error>;

    /// Gives a claim up, held or waiting, and grants the next.
    ///
    /// Contract: total; a claim that is not in the store is [`Released::AlreadyLost`]. The core
    /// polls it once and may then ask for the same name, for another claim, without waiting for the
    /// answer. A store that keeps the order of what one client sends grants that at once; in any
    /// other the claim waits until this one has gone.
    fn release(&self, claim: &Claim) -> Answer<Released>;

    /// Who holds the name and who waits, as the store sees it now. Changes nothing.
    async fn inspect(&self, name: &LockName) -> Result<LockState, Error>;

    /// What those who run the store may ask of it: see [`Admin`]. `None`, the default, where nothing
    /// of it can be asked.
    fn admin(&self) -> Option<&dyn Admin> {
        None
    }

    /// [`acquire`](Self::acquire) for several names at one point of the store's order, so that
    /// multi-locks can't deadlock and cost one round trip. The requests have distinct names.
    ///
    /// Contract: all claims reach the store or none does; one answer each, in order. The core uses
    /// it to wait only on a store that is first come, first served. `None`, the
    /// default, says that the store can't: the core then takes the names one by one, sorted.
    fn acquire_all(&self, requests: &[AcquireRequest]) -> Option<Answer<Vec<Acquired>>> {
        let _ = requests;
        None
    }
}

/// What those who run the store ask of any backend. One without an [`Admin`] answers as one that
/// has nothing to say.
impl dyn Backend {
    /// See [`Admin::list`].
    ///
    /// # Errors
    /// As there; `Unsupported` without an [`Admin`].
    pub async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockName>, Error> {
        self.admin().unwrap_or(&NoAdmin).list(prefix, limit).await
    }

    /// See [`Admin::examine`].
    ///
    /// # Errors
    /// As there.
    pub async fn examine(&self) -> Result<Vec<Finding>, Error> {
        self.admin().unwrap_or(&NoAdmin).examine().await
    }

    /// See [`Admin::raise_tokens`].
    ///
    /// # Errors
    /// As there; `Unsupported` without an [`Admin`].
    pub async fn raise_tokens(&self, name: &LockName, above: FencingToken) -> Result<(), Error> {
        self.admin().unwrap_or(&NoAdmin).raise_tokens(name, above).await
    }
}

/// A shared backend, as the core keeps it.
pub type DynBackend = Arc<dyn Backend>;
