//! One attempt of a worker to acquire a lock.

use std::time::Duration;

use dlock_core::{Certainty, Error, ErrorKind, FencingToken, Guard, Lock, Locks, Mode};
use dlock_testkit::{Stop, support::now};
use tokio::time::sleep;

use super::{
    line::{Phase, REFUSED},
    plan::{Kind, Target},
};

/// The longest wait in the phases without faults. It is a generous limit for a busy machine.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(12);

/// The pause before the next request to a store that was unreachable.
const PAUSE: Duration = Duration::from_millis(50);

/// The parameters of one attempt.
pub(super) struct Attempt {
    pub(super) target: Target,
    pub(super) mode: Mode,
    pub(super) locks: Locks,
    pub(super) wait: Wait,
    pub(super) phase: Phase,
}

#[derive(Clone, Copy)]
pub(super) enum Wait {
    Try,
    For(Duration),
    Ever,
}

impl Attempt {
    /// Acquires the lock. After the faults, it retries while the store is unreachable. Returns the
    /// number of retries, and the result.
    pub(super) async fn insist(&self) -> (usize, Result<Option<Guard>, Error>) {
        let end = now().saturating_add(LONGEST_WAIT);
        let mut again = 0;
        loop {
            match self.take().await {
                Err(error)
                    if error.kind() == ErrorKind::Unavailable
                        && self.phase != Phase::Storm
                        && now() < end =>
                {
                    sleep(PAUSE).await;
                    again += 1;
                }
                answer => return (again, answer),
            }
        }
    }

    pub(super) async fn take(&self) -> Result<Option<Guard>, Error> {
        let (locks, names) = (&self.locks, &self.target.names);
        let name = names.first().map_or("", String::as_str);
        match (self.target.kind, self.mode) {
            (Kind::Mutex, _) => self.take_one(&locks.mutex(name)?).await,
            (Kind::Fair, _) => self.take_one(&locks.fair(name)?).await,
            (Kind::Multi, _) => {
                let names = names.iter().map(String::as_str);
                self.take_one(&locks.multi(names)?).await
            }
            (Kind::ReadWrite, Mode::Shared) => self.take_one(locks.rw(name)?.read()).await,
            (Kind::ReadWrite, _) => self.take_one(locks.rw(name)?.write()).await,
            (Kind::Semaphore(permits), mode) => {
                let (semaphore, n) = (locks.semaphore(name, permits)?, mode.weight());
                match self.wait {
                    Wait::Try => semaphore.try_acquire_many(n).await,
                    Wait::For(wait) => semaphore.acquire_many_timeout(n, wait).await.map(Some),
                    Wait::Ever => semaphore.acquire_many(n).await.map(Some),
                }
            }
        }
    }

    async fn take_one(&self, lock: &dyn Lock) -> Result<Option<Guard>, Error> {
        match self.wait {
            Wait::Try => lock.try_lock().await,
            Wait::For(wait) => lock.lock_timeout(wait).await.map(Some),
            Wait::Ever => lock.lock().await.map(Some),
        }
    }
}

/// Returns the token of each name, in the order of the attempt's names.
pub(super) fn tokens(guard: &Guard, attempt: &Attempt) -> Result<Vec<FencingToken>, Stop> {
    let tokens = guard.tokens();
    let of = |name: &String| {
        let found = tokens.iter().find(|(of, _)| of.as_str() == name);
        found.map(|(_, token)| *token).ok_or_else(|| Stop::failed("a guard without a token"))
    };
    attempt.target.names.iter().map(of).collect()
}

/// Returns the kind of the error as one word.
pub(super) fn kind(error: &Error) -> String {
    match (error.kind(), error.certainty()) {
        (ErrorKind::Unavailable, Certainty::NotApplied) => REFUSED.to_owned(),
        // The text may contain a value in brackets with spaces.
        (kind, _) => format!("{kind:?}").replace(' ', ""),
    }
}
