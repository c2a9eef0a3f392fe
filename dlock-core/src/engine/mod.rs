//! The engine: the part of the core that renews, hands off and releases holds for every backend.
//!
//! One [`Engine`] serves all clones and views of a [`Locks`](crate::Locks), and every guard. This
//! file has its life cycle: it starts, refuses new claims after `shutdown`, and ends. The modules
//! use it, and each uses those before it:
//!
//! - [`end`] ends holds, and no other module does;
//! - [`cancel`] cancels claims that are no longer needed;
//! - [`release`] hands a hold off or releases it;
//! - [`hold_ref`] is the right to do so;
//! - [`renewals`] is the task that renews holds; it also starts the engine.
//!
//! # Concurrency
//!
//! `closed` is set once. `shutdown` misses no claim that is made while it begins: **`shutdown`
//! stores `closed`, then checks the renewal queue. A claim enters the renewal queue, then loads
//! `closed`.** So either `shutdown` waits for the hold, or the claim fails and the hold is
//! released. Both accesses to `closed` are `SeqCst`. `while_open` registers with `closing` before
//! it loads `closed`, so it sees the flag or gets the notification.

pub(crate) mod cancel;
pub(crate) mod end;
pub(crate) mod hold_ref;
pub(crate) mod release;
pub(crate) mod renewals;
mod shared_queue;

use std::{sync::Arc, time::Duration};

use self::shared_queue::SharedQueue;
use crate::{
    Answer, Certainty, Clock, ConfigIssue, DynBackend, Error, ErrorKind, LockName, LockOptions,
    LockState,
    hold::local_deadline,
    support::{
        failure::LastFailure,
        lease_warning::LeaseWarning,
        meter::Meter,
        retry::{Wait, Why},
        tasks::Tasks,
    },
    sync::{
        Notify,
        atomic::{AtomicBool, Ordering},
        time::{self, Instant as Timer},
    },
};

/// The engine over one backend.
pub(crate) struct Engine {
    pub(crate) backend: DynBackend,
    pub(crate) clock: Clock,
    pub(crate) holds: SharedQueue,
    pub(crate) tasks: Tasks,
    pub(crate) meter: Meter,
    pub(crate) failure: Arc<LastFailure>,
    pub(crate) lease_warning: LeaseWarning,
    closed: AtomicBool,
    closing: Notify,
}

impl Engine {
    /// Creates an engine without its renewal task: see [`renewals::start`].
    fn new(backend: DynBackend, tasks: Tasks) -> Self {
        let clock = backend.clock();
        Self {
            holds: SharedQueue::new(clock),
            tasks,
            meter: Meter::new(backend.store(), clock),
            failure: Arc::default(),
            lease_warning: LeaseWarning::default(),
            closed: AtomicBool::new(false),
            closing: Notify::new(),
            backend,
            clock,
        }
    }

    /// Checks that new claims can be made.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.is_closed() {
            return Err(shut_down());
        }
        if self.holds.is_stopped() {
            return Err(runtime_gone());
        }
        Ok(())
    }

    /// Returns the lease to request: see [`local_deadline::stored`].
    pub(crate) fn lease(&self, options: LockOptions) -> Result<Duration, Error> {
        let lease = local_deadline::stored(options, self.backend.longest_lease())?;
        self.check_lease(lease)?;
        Ok(lease)
    }

    /// Checks a lease before it is requested for the first time. A renewal never requests a longer
    /// one.
    pub(crate) fn check_lease(&self, lease: Duration) -> Result<(), Error> {
        let longest = LockOptions::MAX_LEASE.min(self.backend.longest_lease());
        let fits = if lease > longest {
            Err(Error::config(
                ConfigIssue::Lease,
                format!("this store can't keep a lock for {lease:?}: use at most {longest:?}"),
            ))
        } else {
            self.backend.check_lease(lease)
        };
        fits.map_err(|error| error.with_store(self.backend.store()))
    }

    /// Returns the time limit for the answer to a request. A try waits for 1 1/8 response timeouts:
    /// the backend's own error comes after one, and is more precise.
    pub(crate) fn answer_by(&self, wait: Wait) -> Option<Timer> {
        let timeout = self.backend.response_timeout();
        match wait {
            Wait::Try => Timer::now().checked_add(timeout.saturating_add(timeout / 8)),
            Wait::Until(deadline) => deadline,
        }
    }

    /// Waits for an answer until the time of [`answer_by`](Self::answer_by).
    ///
    /// # Errors
    /// Fails if no answer came by then.
    pub(crate) async fn answered<T>(
        &self,
        answer_by: Option<Timer>,
        wait: Wait,
        name: &LockName,
        answer: impl Future<Output = T>,
    ) -> Result<T, Error> {
        let Some(answer_by) = answer_by else { return Ok(answer.await) };
        time::timeout_at(answer_by, answer).await.map_err(|_| match wait {
            Wait::Until(_) => Why::Unanswered(self.failure.get(Some(name))).error(name),
            Wait::Try => {
                let error = self.failure.no_answer(self.backend.response_timeout(), Some(name));
                error.during("acquire").with_lock(name)
            }
        })
    }

    /// Returns the time until which a request that waits for its turn in the client is sent, if its
    /// answer is useful until `answer_by`.
    ///
    /// A request that is sent later would be answered after its caller has gone. A store that is
    /// busy with such requests serves no others, so a quarter of the time is left for the answer, at
    /// most half a response timeout. A larger part would fail short waits behind a single request
    /// that the store delays.
    pub(crate) fn send_by(&self, answer_by: Timer) -> Option<Timer> {
        let now = Timer::now();
        let left = answer_by.saturating_duration_since(now);
        let for_the_answer = (self.backend.response_timeout() / 2).min(left / 4);
        now.checked_add(left.saturating_sub(for_the_answer))
    }

    /// Waits for the answer to an acquire until `answer_by`, while the runtime of these locks runs.
    /// If the request has not been sent by the time of [`send_by`](Self::send_by), it is given up.
    ///
    /// # Errors
    /// As [`answered`](Self::answered).
    pub(crate) async fn acquire_answered<T>(
        &self,
        answer_by: Option<Timer>,
        wait: Wait,
        name: &LockName,
        answer: &mut Answer<T>,
    ) -> Result<Result<T, Error>, Error> {
        if answer.is_unsent()
            && let Some(send_by) = answer_by.and_then(|answer_by| self.send_by(answer_by))
        {
            let sent = self.while_it_runs(&mut *answer);
            if let Ok(answer) = time::timeout_at(send_by, sent).await {
                return Ok(answer);
            }
            // Waits for the rest of its time, so that a caller that retries at once does not add to
            // the load.
            answer.give_up();
        }
        let unsent = answer.is_given_up();
        let answered = self.answered(answer_by, wait, name, self.while_it_runs(answer)).await;
        answered.map_err(|error| match self.failure.get(Some(name)) {
            _ if !unsent => error,
            None => self.unsent(wait, name),
            Some(_) => error.with_certainty(Certainty::NotApplied),
        })
    }

    /// Returns the error of a request that was given up.
    fn unsent(&self, wait: Wait, name: &LockName) -> Error {
        match wait {
            Wait::Until(_) => Why::Unsent.error(name),
            Wait::Try => Error::new(
                ErrorKind::Unavailable,
                "not sent within the response timeout, because earlier requests of this client \
                 wait for the store: use fewer tasks at a time, or check the store and the network",
            )
            .with_certainty(Certainty::NotApplied)
            .during("acquire")
            .with_lock(name),
        }
    }

    /// Adds the verb, the lock and the store to the error of an answer. The core does so for every
    /// call of a backend, so that backends need not.
    pub(crate) fn in_context<T>(
        &self,
        verb: &'static str,
        name: &LockName,
        answer: Result<T, Error>,
    ) -> Result<T, Error> {
        answer.map_err(|error| error.at(verb, name, self.backend.store()))
    }

    /// Reads the state of a name.
    pub(crate) async fn inspect(&self, name: &LockName) -> Result<LockState, Error> {
        let state = self.while_it_runs(self.backend.inspect(name)).await;
        self.in_context("inspect", name, state)
    }

    /// Returns the error of a wait for a lock that is held.
    pub(crate) fn timed_out(&self, name: &LockName) -> Error {
        match self.holds.held_for(name) {
            Some(held) => Why::HeldHere(held).error(name),
            None => Why::Busy.error(name),
        }
    }

    /// Waits in the store's queue. After a lease it logs a warning if this process itself holds the
    /// lock.
    pub(crate) async fn watch<T>(
        &self,
        name: &LockName,
        lease: Duration,
        granted: impl Future<Output = T>,
    ) -> T {
        let mut granted = std::pin::pin!(granted);
        tokio::select! {
            biased;
            granted = &mut granted => return granted,
            () = time::sleep(lease) => {}
        }
        if let Some(held) = self.holds.warns_held_for(name) {
            self.warn_held_here(name, held);
        }
        granted.await
    }

    /// Warns that this process waits for a lock that it holds: a task may be waiting for itself.
    pub(crate) fn warn_held_here(&self, name: &LockName, held: Duration) {
        tracing::warn!(
            target: "dlock",
            { lock.name = %name, backend = self.backend.store(), ?held },
            "waiting for a lock that this process holds"
        );
    }

    /// Returns whether `shutdown` was called.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Runs `work`, which is useless once the runtime of these locks has ended.
    pub(crate) async fn while_it_runs<T>(
        &self,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let answer = tokio::select! {
            biased;
            answer = work => answer,
            () = self.holds.until_stopped() => Err(runtime_gone()),
        };
        // A backend whose tasks ended with the runtime can't state the reason.
        answer.map_err(|error| if self.holds.is_stopped() { runtime_gone() } else { error })
    }

    /// Runs `work` unless `shutdown` is called meanwhile, or the runtime of these locks ends.
    pub(crate) async fn while_open<T>(
        &self,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let mut closing = std::pin::pin!(self.closing.notified());
        closing.as_mut().enable();
        if self.is_closed() {
            return Err(shut_down());
        }
        tokio::select! {
            biased;
            result = self.while_it_runs(work) => result,
            () = closing => Err(shut_down()),
        }
    }

    /// Refuses new claims and waits until no lock is held and no background task is pending.
    pub(crate) async fn shutdown(&self, wait: Duration) -> Result<(), Error> {
        self.closed.store(true, Ordering::SeqCst);
        self.closing.notify_waiters();
        let all = async {
            // Both are checked again: a pending claim may have become a hold, and a hold a release.
            while self.holds.len() > 0 || self.tasks.pending() > 0 {
                self.holds.until_empty().await;
                self.tasks.until_idle().await;
            }
        };
        let done = time::timeout(wait, all).await.is_ok();
        if done {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Timeout,
            format!(
                "shutdown timed out (locks still held: {}, operations under way: {}): drop the guards \
                 and wait longer, or let the leases end",
                self.holds.len(),
                self.tasks.pending()
            ),
        )
        .during("shutdown")
        .with_store(self.backend.store()))
    }
}

pub(crate) fn runtime_gone() -> Error {
    Error::config(
        ConfigIssue::Runtime,
        "the tokio runtime of these locks has ended, so nothing would renew them: create Locks on \
         a runtime that lives as long as they do",
    )
}

fn shut_down() -> Error {
    Error::config(
        ConfigIssue::ShutDown,
        "these locks were shut down: create new ones with Locks::new or connect",
    )
}

impl Drop for Engine {
    /// Wakes the renewal task, which then sees that the engine has been dropped.
    fn drop(&mut self) {
        self.holds.wake.notify_one();
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("store", &self.backend.store())
            .field("held", &self.holds.len())
            .finish_non_exhaustive()
    }
}
