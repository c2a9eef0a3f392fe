//! The contract that a store implements, and its optional part: requests by operators.

use std::{fmt::Debug, sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::{
    AcquireRequest, Acquired, Answer, Claim, Clock, Error, ErrorKind, FencingToken, Finding, Grant,
    Guarantees, LockName, LockState, Released, Renewal, Renewed, StoreEvents,
};

/// A store of locks. A backend author implements only this trait; the core contains guards,
/// renewal, timeouts, cancellation, reentrancy, local hand-off and multi-locks.
///
/// Seven methods are required: the five verbs ([`acquire`](Self::acquire),
/// [`granted`](Self::granted), [`renew`](Self::renew), [`release`](Self::release),
/// [`inspect`](Self::inspect)), [`store`](Self::store) and [`guarantees`](Self::guarantees). The
/// requests by operators are in [`Admin`], which is optional.
///
/// # Contract
/// - **One store, one order.** The operations on a name take effect one after another. The store
///   grants claims by the rule of [`Mode`](crate::Mode): the longest prefix of the queue that fits.
/// - **Idempotent by claim id.** Any verb may be sent again with the same
///   [`ClaimId`](crate::ClaimId) after an error or a lost answer, and takes effect once. If claims
///   belong to a session ([`OrphanRelease::SessionEnd`](crate::OrphanRelease)), an acquire is sent
///   again only by the client that sent it first; a release may come from any client.
/// - **Leases expire by the store's clock.** A claim that is not renewed for its `lease` ends,
///   waiting or held, and the store grants the next one. No wall clock of a client is used. A store
///   whose clock counts ticks makes every lease one tick longer, so that none ends early. If claims
///   belong to a session, its client ends them by its monotonic clock, and the store ends them with
///   the session.
/// - **Tokens grow.** Every grant of a name has larger tokens than every earlier grant, also after
///   a release, an expiry, or the removal of the name from the store.
/// - **No garbage.** After the last holder and waiter of a name have ended, the store deletes its
///   records of the name in bounded time.
///
/// # Errors
/// An error means that the outcome is *unknown*; it is never a refusal. Its
/// [`Certainty`](crate::Certainty) says whether the operation may have taken effect. The backend
/// itself retries transient faults, with the same claim id, for a bounded time. Requests are valid
/// when they arrive: the core has checked names, leases and permits. The core adds the verb,
/// the lock and the store to each error that lacks them.
///
/// # Cancel safety
/// [`acquire`](Self::acquire), [`acquire_all`](Self::acquire_all) and [`release`](Self::release)
/// are never dropped before they end. The exception is an acquire that [was not sent
/// yet](Answer::unsent), whose claim is not released either. [`granted`](Self::granted),
/// [`renew`](Self::renew) and [`inspect`](Self::inspect) may be dropped at any await and must leave
/// the client usable; the core then releases the claim, or retries.
#[async_trait]
pub trait Backend: Send + Sync + Debug + 'static {
    /// The kind and address of this store, without secrets, such as `sqlite:/var/x.db`. The value
    /// is the same in every process. It is shown in errors and traces, and a multi-lock takes
    /// several stores in the order of these values.
    fn store(&self) -> &str;

    /// The promises of this store, as connected and configured.
    fn guarantees(&self) -> Guarantees;

    /// The clock by which the holders of this backend's grants measure their leases.
    fn clock(&self) -> Clock {
        Clock::Boot
    }

    /// The shard of the store that keeps this name: a number that never changes. It is 0 if all
    /// names share one point of failure.
    ///
    /// Contract: names in parts that can fail separately have different shards. The core never
    /// renews two shards with one call, so that a shard that does not answer does not delay the
    /// renewals of the others. A multi-lock acquires shard by shard, in the order of these numbers,
    /// so all clients of the store compute the same number for a name.
    fn shard(&self, name: &LockName) -> u32 {
        let _ = name;
        0
    }

    /// The longest lease that this store supports. If claims depend on a session or a similar
    /// record, the record lasts at least this long after its holder has stopped answering.
    /// `Duration::MAX`, the default, means that each claim has the lease that it requests, up to
    /// [`MAX_LEASE`](crate::LockOptions::MAX_LEASE).
    ///
    /// Contract: the core requests no longer lease, so that no holder relies on one.
    fn longest_lease(&self) -> Duration {
        Duration::MAX
    }

    /// Checks whether this store supports a lease of this length.
    ///
    /// Contract: it does no I/O. The core calls it before each request with a lease, also for the
    /// minimum time of a [`Job`](crate::Job), and never requests a lease that it refuses.
    ///
    /// Errors: `Config(Lease)` for a lease that the store, as it is configured, may forget. The
    /// default accepts every lease.
    fn check_lease(&self, lease: Duration) -> Result<(), Error> {
        let _ = lease;
        Ok(())
    }

    /// The response timeout of one request. A try waits no longer than this, even if the backend
    /// retries. So it should be longer than the backend needs to move to another server.
    /// `Duration::MAX`, the default, means no timeout.
    fn response_timeout(&self) -> Duration {
        Duration::MAX
    }

    /// Subscribes to notifications from the store: see [`StoreEvent`](crate::StoreEvent).
    ///
    /// Contract: events are hints. They report a loss before the next renewal would, and no holder
    /// relies on a lease that a clock step has shortened. If an answer reveals an event, the event
    /// is sent before the answer is returned. Each call returns a new receiver; a receiver that
    /// falls behind misses events. `None`, the default, means that only renewals detect a loss. A
    /// backend sends events with a [`StoreEventSender`](crate::StoreEventSender) or with
    /// [`StoreClocks`](crate::StoreClocks).
    fn events(&self) -> Option<StoreEvents> {
        None
    }

    /// Acquires the lock or joins its queue. With [`Queue::FailIfBusy`](crate::Queue) it returns
    /// `Busy` instead of joining the queue.
    ///
    /// Contract: one round trip. A repeated request for a claim that is in the store returns the
    /// state of that claim and renews the lease of a waiting claim. For a claim that holds the lock,
    /// the store either extends the lease too, or answers when the lease began: [`Grant::since`] is
    /// never the time of a request that has not extended the lease. After `Queued` the core calls
    /// [`granted`](Self::granted) or [`release`](Self::release).
    ///
    /// Errors: `Config(Capacity)` if the name is in use as a lock of another kind, or with another
    /// number of permits. The claim then leaves no trace. `NotHeld` if the claim has ended meanwhile,
    /// for example with its session: the core starts over with another claim.
    fn acquire(&self, request: &AcquireRequest) -> Answer<Acquired>;

    /// Waits until a queued claim is granted, and renews its place in the queue.
    ///
    /// Contract: it does not depend on notifications alone. If every notification is lost, it still
    /// answers within a bounded time after the grant. If the claim has vanished from the store (its
    /// waiting lease expired while this process was stopped), it does not join the queue again: it
    /// returns the error `NotHeld`, and the core starts over.
    async fn granted(&self, request: &AcquireRequest) -> Result<Grant, Error>;

    /// Renews the leases of these claims, in as few round trips as the store allows.
    ///
    /// Contract: one answer for each renewal, in order, and a call may have hundreds of them, with
    /// different leases and modes, several of one lock, and last renewals among others. A renewal
    /// extends the lease of its own claim only, also if other claims share the lock. For a claim
    /// that is not held, also if it waits in the queue, it returns [`Renewed::Lost`], or
    /// [`Renewed::Forgotten`] if the store can detect that, and does not acquire the claim again.
    ///
    /// A store that loses a grant, but not the place in the queue, grants the claim anew, perhaps
    /// after others. So it gives the same answers for a claim that is held with a later token than
    /// that of the [renewal](Renewal::token).
    ///
    /// Requests may arrive in another order than they were sent, so neither a renewal nor a
    /// repeated acquire ever shortens the lease of a claim. The only exception is the [last
    /// renewal](Renewal::is_last), which sets the lease. After it, only another last renewal
    /// changes the lease, and only to an earlier end. If the state of one claim can't be
    /// determined, its answer is [`Renewed::Unknown`], and the others are still answered, also if a
    /// downgrade among them fails. A mode weaker than the held one is a downgrade: it takes effect
    /// at once, or soon if the call has other renewals, and the store grants the waiters that now
    /// fit. A stronger mode is ignored: it comes from a renewal that was in flight during a
    /// downgrade.
    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, Error>;

    /// Releases a held claim or cancels a waiting one, and grants the next.
    ///
    /// Contract: it accepts every claim; the answer for a claim that is not in the store is
    /// [`Released::AlreadyLost`]. The core polls it once and may then send another claim for the
    /// same name, without waiting for the answer. A store that keeps the order of one client's
    /// requests grants that claim at once; in any other store the claim waits until this one has
    /// ended.
    fn release(&self, claim: &Claim) -> Answer<Released>;

    /// Returns the holders and waiters of the name, as the store sees them now. Changes nothing.
    async fn inspect(&self, name: &LockName) -> Result<LockState, Error>;

    /// The requests by operators: see [`Admin`]. `None`, the default, if the store supports none of
    /// them.
    fn admin(&self) -> Option<&dyn Admin> {
        None
    }

    /// Sends [`acquire`](Self::acquire) for several names of one [`shard`](Self::shard) at one
    /// point of the store's order, so that multi-locks can't deadlock and cost one round trip. The
    /// requests have distinct names.
    ///
    /// Contract: either all claims reach the store or none does; one answer for each, in order.
    /// Each has its own lease, and its other properties, as if it were sent alone. If a lock is
    /// busy for [`Queue::FailIfBusy`](crate::Queue), all answers may be `Busy`. These claims are
    /// granted in the order of their arrival in every queue, even if the client of an earlier one
    /// can't be reached. The core uses it for waits only on a store with first-come, first-served
    /// queues. `None`, the default, means that the store does not support it: the core then
    /// acquires the names one by one, sorted. All clients of a store return `None`, whatever their
    /// settings, or none of them does: a client that enters the queues at once and another one that
    /// enters them one by one can deadlock.
    fn acquire_all(&self, requests: &[AcquireRequest]) -> Option<Answer<Vec<Acquired>>> {
        let _ = requests;
        None
    }
}

/// The requests by operators, for any backend. Without an [`Admin`] the defaults of its methods
/// apply.
impl dyn Backend {
    /// Calls [`Admin::list`].
    ///
    /// # Errors
    /// As [`Admin::list`]; `Unsupported` without an [`Admin`].
    pub async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockName>, Error> {
        self.admin().unwrap_or(&NoAdmin).list(prefix, limit).await
    }

    /// Calls [`Admin::examine`].
    ///
    /// # Errors
    /// As [`Admin::examine`].
    pub async fn examine(&self) -> Result<Vec<Finding>, Error> {
        self.admin().unwrap_or(&NoAdmin).examine().await
    }

    /// Calls [`Admin::raise_tokens`].
    ///
    /// # Errors
    /// As [`Admin::raise_tokens`]; `Unsupported` without an [`Admin`].
    pub async fn raise_tokens(&self, name: &LockName, above: FencingToken) -> Result<(), Error> {
        self.admin().unwrap_or(&NoAdmin).raise_tokens(name, above).await
    }
}

/// A shared backend. The core stores backends in this form.
pub type DynBackend = Arc<dyn Backend>;

/// Requests by operators of a store, through [`Locks`](crate::Locks) or the command `dlock`. A
/// backend returns it from [`Backend::admin`](crate::Backend::admin). No lock needs it.
///
/// # Cancel safety
/// All of these futures may be dropped at any await and must leave the client usable.
#[async_trait]
pub trait Admin: Send + Sync {
    /// Returns the names that begin with `prefix` and have a holder or a waiter, at most `limit` of
    /// them. An empty prefix matches all names.
    ///
    /// Contract: a name that has a holder or a waiter during the whole call is in the result,
    /// unless there are more than `limit` names; then the choice is unspecified. A free name may be
    /// in the result. Each name occurs once, in any order. The call changes nothing and blocks no
    /// other client: a store that has to scan all its data scans in steps.
    ///
    /// Errors: `Unsupported`, the default, if the store can't list names.
    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockName>, Error> {
        let _ = (prefix, limit);
        Err(Error::new(
            ErrorKind::Unsupported,
            "this store can't list its locks: inspect each lock by its name",
        ))
    }

    /// Examines the configuration of the store for an operator: its version, its clock, whether it
    /// loses data, the permissions of this client, and a remedy for each problem.
    ///
    /// Contract: leaves no lasting change. If the store refuses to answer a question, that is a
    /// finding too.
    ///
    /// Errors: `Unavailable` if the store does not answer at all.
    async fn examine(&self) -> Result<Vec<Finding>, Error> {
        Ok(Vec::new())
    }

    /// Raises the tokens of a name, for a resource that has seen a larger token than the store
    /// remembers.
    ///
    /// Contract: after the answer, every later grant of the name to any client has tokens above
    /// `above`, for as long as the store remembers the last token of a name. A holder of the lock
    /// keeps it, with its token. A repeated call has no further effect.
    ///
    /// Errors: `Unsupported`, the default, if the store can't raise tokens; `Config(Token)` if the
    /// store can't count that far.
    async fn raise_tokens(&self, name: &LockName, above: FencingToken) -> Result<(), Error> {
        let _ = (name, above);
        Err(Error::new(
            ErrorKind::Unsupported,
            "this store's fencing tokens can't be raised: use a store that can, such as dlock's \
             tables in a database, set dlock.token_offset for all clients, or reset the token that \
             the resource has stored",
        ))
    }
}

/// The `Admin` of a backend that has none: all methods have their defaults.
struct NoAdmin;

impl Admin for NoAdmin {}
