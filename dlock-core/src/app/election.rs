//! Leader election: one of several candidates leads at a time.

use std::{ops::ControlFlow, time::Duration};

use crate::{
    ClaimState, Error, ErrorKind, FencingToken, Guard, LockName, Lost, Mode, Released,
    kinds::Base,
    support::{
        labels::Kind,
        retry::{Wait, backoff},
    },
    sync::time,
};

/// A candidate for a name, of which one leads at a time: what
/// [`Locks::election`](crate::Locks::election) makes.
///
/// To lead is to hold the lock of that name, through the store's queue and never by hand-over within
/// the process; so an election and a mutex of one name exclude each other. The term of a leader is
/// its fencing token: give it to what the leader writes to.
///
/// ```
/// use std::ops::ControlFlow;
/// use dlock_core::{Locks, Memory};
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

    /// The name.
    pub fn name(&self) -> &LockName {
        &self.base.name
    }

    /// Waits to be the leader, as long as [`LockOptions::with_wait`](crate::LockOptions::with_wait)
    /// says: for ever, unless it was set. Candidates lead in the order in which they came, where the
    /// store keeps one.
    ///
    /// # Errors
    /// As [`Lock::lock`](crate::Lock::lock).
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the candidate, and leaves nothing behind.
    pub async fn campaign(&self) -> Result<Leadership, Error> {
        self.campaign_for(self.base.options.wait()).await
    }

    /// Leads if nobody else does; `None` when somebody does.
    ///
    /// # Errors
    /// As [`Lock::try_lock`](crate::Lock::try_lock).
    ///
    /// # Cancel safety
    /// As [`campaign`](Self::campaign).
    pub async fn try_campaign(&self) -> Result<Option<Leadership>, Error> {
        Ok(self.take(Wait::Try).await?.map(Leadership))
    }

    /// Who leads now, as the store sees it: the token is the term, `age` says since when, `remaining`
    /// how long the term lasts without a sign of life. It may be out of date when it arrives.
    ///
    /// # Errors
    /// `Unavailable`, and `Unsupported` where a store can't say who holds a lock.
    ///
    /// # Cancel safety
    /// It can be dropped at any time.
    pub async fn leader(&self) -> Result<Option<ClaimState>, Error> {
        let backend = &self.base.engine().backend;
        let asked = self.base.engine().while_it_runs(backend.inspect(&self.base.name)).await;
        let state = asked.map_err(|error| {
            error.during("leader").with_lock(&self.base.name).with_store(backend.store())
        })?;
        // A leader holds the lock exclusively, so there is at most one holder.
        Ok(state.holders.into_iter().next())
    }

    /// Campaigns, runs `work` while leading, and campaigns again, until `work` says that all is done.
    ///
    /// `work` is called once for each term, with the term. `Break` resigns and ends this with its
    /// value. `Continue` resigns, so that somebody else may lead, and goes on as a candidate. When
    /// the leadership is lost, `work` is dropped where it stands, and this goes on as a candidate.
    ///
    /// Between two terms it pauses for 25 ms to a second, longer each time until a term has lasted
    /// for a lease. A store that can't be reached is asked again in the same way, for ever; waits
    /// have no other end here.
    ///
    /// # Errors
    /// What does not pass by itself: `Config`, also after
    /// [`shutdown`](crate::Locks::shutdown), `Unsupported` and `Protocol`. `Lost` for a `Break` of
    /// work that outlived its term because it blocked its thread, also when the store says so only
    /// when it is resigned: [`Error::take_output`] gives the value.
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
        let mut tries = 0;
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
                        // and must not be lost either. A `Continue` is a new candidature anyway.
                        Err(lost) => match lost.take_output() {
                            Some(ControlFlow::Break(done)) => {
                                return Err(lost.with_output::<T>(done));
                            }
                            Some(ControlFlow::Continue(())) | None => {}
                        },
                    }
                    // Only a term of a whole lease resets the backoff. Otherwise a store that
                    // grants and loses at once would be asked in a hot loop.
                    if clock.now().since(began) >= self.base.options.lease() {
                        tries = 0;
                    }
                }
                Err(error) if passes(&error) => {
                    tracing::debug!(target: "dlock", %error, "election failed, will be retried");
                }
                Err(error) => return Err(error),
            }
            // After a `Continue` as well: a pause gives candidates on a store without a queue a
            // chance.
            tries += 1;
            time::sleep(backoff(tries)).await;
        }
    }

    async fn campaign_for(&self, wait: Duration) -> Result<Leadership, Error> {
        let taken = self.take(Wait::for_at_most(wait)).await;
        self.base.granted(taken).map(Leadership)
    }

    async fn take(&self, wait: Wait) -> Result<Option<Guard>, Error> {
        // `Base::take` sends a claim of its own. A local hand-off would let one process lead term
        // after term while candidates of other processes wait.
        let take = self.base.take(Mode::Exclusive, wait);
        let taken = self.base.engine().meter.acquiring(Kind::Election, take).await;
        Ok(taken?.map(Guard::one))
    }
}

/// Whether a later attempt may succeed without a change to the program.
fn passes(error: &Error) -> bool {
    error.is_transient() || matches!(error.kind(), ErrorKind::Lost | ErrorKind::NotHeld)
}

/// The leadership of an [`Election`], until it is resigned, dropped or lost.
///
/// It can be lost as every lock can, see [`Guard`]: work of a leader either runs in
/// [`run`](Self::run), or watches [`lost`](Self::lost), or calls [`check`](Self::check) before each
/// step; and what it writes carries the [`term`](Self::term). Dropping it resigns in the background.
#[derive(Debug)]
#[must_use = "the leadership is resigned as soon as it is dropped"]
pub struct Leadership(Guard);

impl Leadership {
    /// The fencing token of this term: larger than those of all terms before.
    pub fn term(&self) -> FencingToken {
        self.0.token()
    }

    /// The term, if it still lasts.
    ///
    /// # Errors
    /// `Lost`.
    pub fn check(&self) -> Result<FencingToken, Error> {
        self.0.check()
    }

    /// Resolves when the leadership is lost, before the store lets somebody else lead: see
    /// [`Guard::lost`].
    pub fn lost(&self) -> Lost {
        self.0.lost()
    }

    /// Runs `work` while leading, and drops it where it stands when the leadership is lost.
    ///
    /// # Errors
    /// As [`Guard::run`].
    ///
    /// # Cancel safety
    /// As `work`. The leadership stays.
    pub async fn run<F>(&self, work: F) -> Result<F::Output, Error>
    where
        F: Future,
        F::Output: Send + 'static,
    {
        self.0.run(work).await
    }

    /// Resigns, so that the next candidate leads, and tells whether the term lasted until now.
    ///
    /// # Errors
    /// As [`Guard::release`].
    ///
    /// # Cancel safety
    /// When the future is dropped it goes on in the background.
    pub async fn resign(self) -> Result<Released, Error> {
        self.0.release().await
    }
}
