//! What a holder holds.

mod background;
mod parting;
mod work;

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};

use self::background::Background;
use crate::{
    Error, ErrorKind, FencingToken, LockName, Mode, Released, Renewal, Renewed,
    engine::{
        Engine,
        hold::{Hold, LettingGo},
    },
    kinds::reentrant::Entry,
};

/// A held lock. It is owned and can be moved between tasks and kept in structs.
///
/// The lock is kept by renewal in the background until the guard is released or dropped. It can
/// be lost all the same: the store was out of reach for a whole lease, somebody broke the lock,
/// the process was stopped. So work under a guard either runs in [`run`](Self::run), or watches
/// [`lost`](Self::lost), or calls [`check`](Self::check) before each step; and what it writes
/// carries the [`token`](Self::token), because no check can rule out a pause between it and the
/// write.
///
/// Dropping a guard releases the lock in the background: it does not block and does not panic,
/// inside a runtime or outside. [`release`](Self::release) does the same and tells how it went.
/// What is dropped just before `main` returns does not reach the store, and its lease must end:
/// await `release`, or [`Locks::shutdown`](crate::Locks::shutdown).
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct Guard(Kind);

enum Kind {
    Single(Held),
    Entered(Entry),
    /// Of a multi-lock: sorted by name, never empty. Boxed, so that all guards are small.
    Many(Box<(LockName, Vec<Guard>)>),
}

/// The right to let a hold go, used up by dropping it.
struct Held {
    hold: Arc<Hold>,
    /// Taken by whoever lets go before the drop.
    token: Option<FencingToken>,
}

/// Whether a guard still protects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum GuardState {
    /// The lock is lost. Work under it must stop.
    Lost,
    /// The last renewal failed; the lease still runs and renewal is tried again.
    Doubtful,
    /// The lock is held.
    Held,
}

/// How a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ended {
    /// The guard was released or dropped.
    Released,
    /// The lease ran out before a renewal came through.
    Expired,
    /// The store says that the claim is not held any more.
    Revoked,
    /// The store's clock was set forward past the end of the lease.
    ClockStep,
    /// The store has lost the claim with its data: it may have let somebody else in since it did.
    StoreReset,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Released => "it was released",
            Self::Expired => "its lease ended before it could be renewed",
            Self::Revoked => "the store does not know the claim any more",
            Self::ClockStep => "the store's clock was set forward past the end of its lease",
            Self::StoreReset => "the store has lost its data, and the claim with it",
        })
    }
}

impl Guard {
    pub(crate) fn single(hold: Arc<Hold>, token: FencingToken) -> Self {
        Self(Kind::Single(Held { hold, token: Some(token) }))
    }

    pub(crate) fn of_hold(hold: Arc<Hold>) -> Self {
        let token = hold.first_token();
        Self::single(hold, token)
    }

    /// Allows the downgrade.
    pub(crate) fn mark_writer(&self) {
        self.each(&mut |hold, _| hold.mark_writer());
    }

    pub(crate) fn entered(entry: Entry) -> Self {
        Self(Kind::Entered(entry))
    }

    /// Of a multi-lock; the guards are sorted by name.
    pub(crate) fn many(name: &LockName, guards: Vec<Self>) -> Self {
        Self(Kind::Many(Box::new((name.clone(), guards))))
    }

    /// The name of the lock; of a multi-lock, the first of its names.
    pub fn name(&self) -> &LockName {
        match &self.0 {
            Kind::Single(held) => held.hold.name(),
            Kind::Entered(entry) => entry.guard().name(),
            Kind::Many(parts) => &parts.0,
        }
    }

    /// What made it; of a multi-lock, that of the first of its names.
    pub(crate) fn engine(&self) -> Option<&Arc<Engine>> {
        match &self.0 {
            Kind::Single(held) => Some(&held.hold.engine),
            Kind::Entered(entry) => entry.guard().engine(),
            Kind::Many(parts) => parts.1.first().and_then(Self::engine),
        }
    }

    /// The fencing token of this grant; of a multi-lock, the largest of [`tokens`](Self::tokens).
    pub fn token(&self) -> FencingToken {
        match &self.0 {
            Kind::Single(held) => held.token(),
            Kind::Entered(entry) => entry.guard().token(),
            Kind::Many(parts) => parts.1.iter().map(Self::token).max().unwrap_or(FencingToken::MAX),
        }
    }

    /// The token of each name, in the order of names. A resource that is guarded by one of the
    /// names takes that one's. Over several stores, compare only tokens of one store.
    pub fn tokens(&self) -> Vec<(LockName, FencingToken)> {
        let mut tokens = Vec::new();
        self.each(&mut |hold, token| tokens.push((hold.name().clone(), token)));
        tokens
    }

    /// Whether it still protects, as far as this process can know.
    pub fn state(&self) -> GuardState {
        let mut state = GuardState::Held;
        self.each(&mut |hold, _| state = state.min(hold.state()));
        state
    }

    /// How long it protects if no further renewal comes through; zero once it is lost.
    pub fn remaining(&self) -> Duration {
        let mut least = Duration::MAX;
        self.each(&mut |hold, _| {
            least = least.min(match hold.state() {
                GuardState::Lost => Duration::ZERO,
                _ => hold.valid_until().since(hold.engine.clock.now()),
            });
        });
        least
    }

    /// The token, if the lock is still held.
    ///
    /// # Errors
    /// `Lost`.
    pub fn check(&self) -> Result<FencingToken, Error> {
        match self.first_lost(&|hold, how| hold.lost_error(how)) {
            Some(error) => Err(error.during("check")),
            None => Ok(self.token()),
        }
    }

    /// This of the first hold that is lost.
    fn first_lost<T>(&self, of: &dyn Fn(&Hold, Ended) -> T) -> Option<T> {
        let mut lost = None;
        self.each(&mut |hold, _| {
            if lost.is_none() && hold.state() == GuardState::Lost {
                lost = Some(of(hold, hold.ended().unwrap_or(Ended::Expired)));
            }
        });
        lost
    }

    /// Resolves when the lock is lost, no later than the end of the lease by this process's clock
    /// and so before the store lets somebody else in; also when the guard is released. It borrows
    /// nothing: wait for it in any task.
    ///
    /// Timers are as exact as the runtime is idle: a task that blocks its thread delays it.
    pub fn lost(&self) -> Lost {
        let mut any = FuturesUnordered::new();
        self.each(&mut |hold, token| any.push(Arc::clone(hold).until_ended(token)));
        Lost(Box::pin(async move { any.next().await.unwrap_or(Ended::Released) }))
    }

    /// Releases the lock and tells whether it was held to the end. The guard of a reentrant lock
    /// leaves; the last one to leave releases.
    ///
    /// # Errors
    /// None for a lock that was lost before, which is `AlreadyLost`: at once, or, if it has a
    /// lock-delay to be ended, after one request to the store. A multi-lock is `AlreadyLost` when one
    /// of its locks is.
    /// `Unavailable` when the store could not be asked for one lease, after which the lease has
    /// freed the lock. The release goes on in the background all the same, for 30 s at least: the
    /// lease of a store whose clock was ahead ends later.
    ///
    /// # Cancel safety
    /// When the future is dropped the release goes on in the background.
    pub async fn release(self) -> Result<Released, Error> {
        match self.0 {
            Kind::Single(mut held) => {
                held.token = None;
                match held.hold.let_go() {
                    LettingGo::Done(released) => released,
                    LettingGo::Later(release) => {
                        let hold = Arc::clone(&held.hold);
                        let engine = Arc::clone(&hold.engine);
                        let release = Background { hold, release: Some(release) };
                        engine.while_it_runs(release).await
                    }
                }
            }
            Kind::Entered(entry) => match entry.leave() {
                Ok(guard) => Box::pin(guard.release()).await,
                Err(still_held) => Ok(still_held),
            },
            Kind::Many(parts) => {
                let mut all: FuturesUnordered<_> =
                    parts.1.into_iter().map(|guard| Box::pin(guard.release())).collect();
                let mut result = Ok(Released::Released);
                while let Some(one) = all.next().await {
                    // A loss counts more than an error, which says nothing of it.
                    result = match (result, one) {
                        (Ok(Released::AlreadyLost), _) | (_, Ok(Released::AlreadyLost)) => {
                            Ok(Released::AlreadyLost)
                        }
                        (Ok(_), one) => one,
                        (result, _) => result,
                    };
                }
                result
            }
        }
    }

    /// Turns a held write into a read without letting a writer in between; readers that wait may
    /// join at once. The token stays.
    ///
    /// # Errors
    /// `Unsupported` for every guard but a read-write lock's write guard; `Lost`; `Unavailable`.
    /// From the call on the guard counts as a read, whatever the outcome: after an error the next
    /// renewal, if there is one, completes it.
    ///
    /// # Cancel safety
    /// As after an error.
    pub async fn downgrade(&mut self) -> Result<(), Error> {
        let hold = match &self.0 {
            Kind::Single(held) if held.hold.is_writer() => Arc::clone(&held.hold),
            _ => {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    "only the write guard of a read-write lock can be downgraded",
                )
                .during("downgrade")
                .with_lock(self.name()));
            }
        };
        self.check()?;
        hold.mark_downgraded();
        let renewal = Renewal {
            claim: hold.claim(),
            mode: Mode::Shared,
            lease: hold.next_lease(),
            token: Some(hold.first_token()),
        };
        let sent = hold.engine.clock.now();
        let renewed = hold.engine.backend.renew(std::slice::from_ref(&renewal));
        let answers = hold.engine.while_it_runs(renewed).await;
        match answers.map_err(|error| error.during("downgrade").with_lock(hold.name()))?.first() {
            Some(Renewed::Kept) => {
                hold.engine.keeper.renewed(&hold, sent, renewal.lease);
                // The answer may have come after the end of the lease that was believed in.
                if hold.state() == GuardState::Lost {
                    let how = hold.ended().unwrap_or(Ended::Expired);
                    return Err(hold.lost_error(how).during("downgrade"));
                }
                Ok(())
            }
            Some(Renewed::Unknown) => Err(Error::new(
                ErrorKind::Unavailable,
                "the store can't tell whether the lock is held: try again",
            )
            .during("downgrade")
            .with_lock(hold.name())),
            answer => {
                let how = match answer {
                    Some(Renewed::Forgotten) => Ended::StoreReset,
                    _ => Ended::Revoked,
                };
                hold.lose(how);
                Err(hold.lost_error(how).during("downgrade"))
            }
        }
    }

    /// Visits the holds behind it with their tokens.
    fn each(&self, visit: &mut dyn FnMut(&Arc<Hold>, FencingToken)) {
        match &self.0 {
            Kind::Single(held) => visit(&held.hold, held.token()),
            Kind::Entered(entry) => entry.guard().each(visit),
            Kind::Many(parts) => parts.1.iter().for_each(|guard| guard.each(visit)),
        }
    }
}

impl Held {
    fn token(&self) -> FencingToken {
        self.token.unwrap_or_else(|| self.hold.first_token())
    }
}

// The last entry of a reentrant lock and the parts of a multi-lock drop in turn.
impl Drop for Held {
    fn drop(&mut self) {
        if self.token.is_some() {
            self.hold.let_go_in_background();
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("tokens", &self.tokens())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

/// Resolves when a guard's hold ends: see [`Guard::lost`].
#[must_use = "futures do nothing unless awaited"]
pub struct Lost(Pin<Box<dyn Future<Output = Ended> + Send>>);

impl Future for Lost {
    type Output = Ended;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ended> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lost")
    }
}
