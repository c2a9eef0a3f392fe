//! Leader election: one of several candidates leads at a time.

use std::{ops::ControlFlow, time::Duration};

use crate::{
    ClaimState, Error, ErrorKind, FencingToken, Guard, LockName, Lost, Mode, Released,
    kinds::Base,
    support::{
        labels::Kind,
        retry::{PAUSES, Wait},
    },
};

/// A candidate for a name; one candidate of a name leads at a time. Created by
/// [`Locks::election`](crate::Locks::election).
///
/// The leader holds the lock of that name. Candidates wait in the store's queue, without local
/// hand-off. An election and a mutex of one name exclude each other. The term of a leader is its
/// fencing token: send it with every write that the leader makes.
///
/// ```
/// use std::ops::ControlFlow;
/// # mod dlock { pub use dlock_core::*; pub mod backend { pub use dlock_core::*; } }
/// use dlock::{Locks, backend::Memory};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), dlock_core::Error> {
/// let locks = Locks::new(Memory::new())?;
/// let election = locks.election("scheduler")?;
/// let first = election
///     .lead(|term| async move {
///         println!("leading with term {term}");
///         ControlFlow::Break(term)
///     })
///     .await?;
/// assert!(election.campaign().await?.term() > first);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Election {
    base: Base,
}

impl Election {
    pub(crate) fn new(base: Base) -> Self {
        Self { base }
    }

    /// The name of the election and of its lock.
    pub fn name(&self) -> &LockName {
        &self.base.name
    }

    /// Waits to become the leader, for the time of
    /// [`LockOptions::with_wait`](crate::LockOptions::with_wait), by default without a limit.
    /// Candidates lead in order of arrival if the store keeps that order.
    ///
    /// # Errors
    /// As [`Lock::lock`](crate::Lock::lock).
    ///
    /// # Cancel safety
    /// Dropping the future cancels the claim of the candidate, and leaves nothing behind.
    pub async fn campaign(&self) -> Result<Leadership, Error> {
        self.campaign_for(self.base.options.wait()).await
    }

    /// Becomes the leader if there is none. Otherwise returns `None`.
    ///
    /// # Errors
    /// As [`Lock::try_lock`](crate::Lock::try_lock).
    ///
    /// # Cancel safety
    /// As [`campaign`](Self::campaign).
    pub async fn try_campaign(&self) -> Result<Option<Leadership>, Error> {
        Ok(self.take(Wait::Try).await?.map(Leadership))
    }

    /// Returns the current leader, as the store sees it: the token is the term, `age` is the time
    /// since the term began, `remaining` is the time until the term expires without renewal. The
    /// answer may be out of date when it arrives.
    ///
    /// # Errors
    /// `Unavailable`, and `Unsupported` if the store can't list the holders of a lock.
    ///
    /// # Cancel safety
    /// The future can be dropped at any time.
    pub async fn leader(&self) -> Result<Option<ClaimState>, Error> {
        let state = self.base.engine().inspect(&self.base.name).await?;
        // A leader holds the lock exclusively, so there is at most one holder.
        Ok(state.holders.into_iter().next())
    }

    /// Campaigns, runs `work` while leading, and campaigns again, until `work` returns `Break`.
    ///
    /// `work` is called once for each term, with the term. `Break` resigns and returns its value.
    /// `Continue` resigns, so that somebody else may lead, and campaigns again. If the leadership
    /// is lost, `lead` drops the future of `work` and campaigns again.
    ///
    /// Between two terms it pauses for 25 ms to 1 s, and longer each time until a term has lasted
    /// for a lease. While the store is unreachable, it retries with the same pauses, without a
    /// limit.
    ///
    /// # Errors
    /// Errors that a retry can't resolve: `Config`, also after
    /// [`shutdown`](crate::Locks::shutdown), `Unsupported` and `Protocol`. `Lost` if `work`
    /// returned `Break` but outlived its term because it blocked its thread, even if only the
    /// release reveals the loss: [`Error::take_output`] returns the value.
    ///
    /// # Cancel safety
    /// Dropping the future drops `work` and resigns in the background.
    pub async fn lead<T, Work, Fut>(&self, mut work: Work) -> Result<T, Error>
    where
        T: Send + 'static,
        Work: FnMut(FencingToken) -> Fut,
        Fut: Future<Output = ControlFlow<T>>,
    {
        let clock = self.base.engine().clock;
        let mut pauses = PAUSES;
        loop {
            match self.campaign_for(Duration::MAX).await {
                Ok(leadership) => {
                    // From here to the release, `end` is responsible for the leadership. If this
                    // future is dropped, the drop of `leadership` resigns in the background.
                    let began = clock.now();
                    let ran = leadership.run(work(leadership.term())).await;
                    match leadership.0.end(ran, "release of leadership failed").await {
                        Ok(ControlFlow::Break(done)) => return Ok(done),
                        Ok(ControlFlow::Continue(())) => {}
                        // The work outlived its term. A `Break` must not be reported as success,
                        // and its value must not be lost. A `Continue` needs no such care: it
                        // campaigns again in either case.
                        Err(lost) => match lost.take_output() {
                            Some(ControlFlow::Break(done)) => {
                                return Err(lost.with_output::<T>(done));
                            }
                            Some(ControlFlow::Continue(())) | None => {}
                        },
                    }
                    // Only a term of a whole lease resets the backoff. Otherwise a store that
                    // grants the lock and immediately loses it would be retried in a hot loop.
                    if clock.now().since(began) >= self.base.options.lease() {
                        pauses = PAUSES;
                    }
                }
                Err(error) if passes(&error) => {
                    tracing::debug!(target: "dlock", %error, "election failed, will be retried");
                }
                Err(error) => return Err(error),
            }
            // A `Continue` pauses too, so that other candidates get a chance on a store without a
            // queue.
            pauses.wait().await;
        }
    }

    async fn campaign_for(&self, wait: Duration) -> Result<Leadership, Error> {
        let taken = self.take(Wait::for_at_most(wait)).await;
        self.base.granted(taken).map(Leadership)
    }

    async fn take(&self, wait: Wait) -> Result<Option<Guard>, Error> {
        // `Base::take` sends a new claim. With local hand-off, one process could lead term after
        // term while candidates of other processes wait.
        let take = self.base.take(Mode::Exclusive, wait);
        let taken = self.base.engine().meter.acquiring(Kind::Election, take).await;
        Ok(taken?.map(Guard::one))
    }
}

/// Returns whether a later attempt may succeed without a change to the program.
fn passes(error: &Error) -> bool {
    error.is_transient() || matches!(error.kind(), ErrorKind::Lost | ErrorKind::NotHeld)
}

/// The leadership of an [`Election`], until it is resigned, dropped or lost.
///
/// Like every lock it can be lost, see [`Guard`]. The leader's work either runs in
/// [`run`](Self::run), or watches [`lost`](Self::lost), or calls [`check`](Self::check) before each
/// step; and every write carries the [`term`](Self::term). Dropping the leadership resigns in the
/// background.
#[derive(Debug)]
#[must_use = "the leadership is resigned as soon as it is dropped"]
pub struct Leadership(Guard);

impl Leadership {
    /// The fencing token of this term, which is larger than those of all earlier terms.
    pub fn term(&self) -> FencingToken {
        self.0.token()
    }

    /// Returns the term if the leadership is still held.
    ///
    /// # Errors
    /// `Lost`.
    pub fn check(&self) -> Result<FencingToken, Error> {
        self.0.check()
    }

    /// Resolves when the leadership is lost, before the store lets another candidate lead: see
    /// [`Guard::lost`].
    pub fn lost(&self) -> Lost {
        self.0.lost()
    }

    /// Runs `work` while leading, and drops its future if the leadership is lost.
    ///
    /// # Errors
    /// As [`Guard::run`].
    ///
    /// # Cancel safety
    /// As the future of `work`. The leadership stays.
    pub async fn run<F>(&self, work: F) -> Result<F::Output, Error>
    where
        F: Future,
        F::Output: Send + 'static,
    {
        self.0.run(work).await
    }

    /// Resigns, so that the next candidate leads, and reports whether the term lasted until now.
    ///
    /// # Errors
    /// As [`Guard::release`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the release continues in the background.
    pub async fn resign(self) -> Result<Released, Error> {
        self.0.release().await
    }
}
