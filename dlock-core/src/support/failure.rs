//! The last failure of the store, for the errors of waits that ended without any answer.
//!
//! # Concurrency
//!
//! The error changes under its mutex. With `known`, calls that succeed skip the mutex. `abandoned`
//! allows one abandoned request at a time. Both are hints, so their accesses are relaxed: after an
//! answer and a failure at the same time, either of them may be recorded as the last.

use std::{sync::Arc, time::Duration};

use super::tasks::Tasks;
use crate::{
    Error, ErrorKind, LockName,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

/// The last failure. It is empty while the store answers.
#[derive(Default)]
pub(crate) struct LastFailure {
    known: AtomicBool,
    error: Mutex<Option<Error>>,
    /// Whether an abandoned request is in flight.
    abandoned: AtomicBool,
}

impl LastFailure {
    /// Records a failure of a request for this lock; `None` is a request for several locks.
    pub(crate) fn note(&self, error: &Error, name: Option<&LockName>) {
        if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Protocol) {
            let error = error.clone();
            *self.error.lock() = Some(match name {
                Some(name) => error.with_lock(name),
                None => error,
            });
            self.known.store(true, Ordering::Relaxed);
        }
    }

    /// Records that the store has answered.
    pub(crate) fn over(&self) {
        if self.known.load(Ordering::Relaxed) {
            self.known.store(false, Ordering::Relaxed);
            *self.error.lock() = None;
        }
    }

    /// Records the result of a request for this lock; `None` is a request for several locks.
    pub(crate) fn record<T>(&self, answer: &Result<T, Error>, name: Option<&LockName>) {
        match answer {
            Ok(_) => self.over(),
            Err(error) => self.note(error, name),
        }
    }

    /// Completes an abandoned request in the background, one at a time.
    pub(crate) fn wait_for<T: Send + 'static>(
        self: &Arc<Self>,
        tasks: &Tasks,
        question: impl Future<Output = T> + Send + 'static,
    ) {
        if !self.abandoned.swap(true, Ordering::Relaxed) {
            let this = Arc::clone(self);
            tasks.spawn(async move {
                drop(question.await);
                this.abandoned.store(false, Ordering::Relaxed);
            });
        }
    }

    /// Returns the last failure, as far as it concerns this lock; `None` is no lock in particular.
    ///
    /// An outage concerns all locks, so it is returned without the name of the lock that met it. A
    /// record that can't be read concerns only its own lock.
    pub(crate) fn get(&self, name: Option<&LockName>) -> Option<Error> {
        let last = self.error.lock().clone()?;
        match last.lock() {
            met if met.is_none() || met == name => Some(last),
            _ if last.kind() == ErrorKind::Unavailable => Some(last.without_lock()),
            _ => None,
        }
    }

    /// Returns the error of a request for this lock that was not answered within this time.
    pub(crate) fn no_answer(&self, within: Duration, name: Option<&LockName>) -> Error {
        let error =
            |rest| Error::new(ErrorKind::Unavailable, format!("no answer within {within:?}{rest}"));
        match self.get(name) {
            Some(last) => error(format!("; the last error was: {last}")).with_source(last),
            None => error(": check the store and the network".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_sees_outages_and_its_own_failures() {
        let [a, b] = ["a", "b"].map(|name| LockName::new(name).unwrap());
        let failure = LastFailure::default();
        let text = |name| failure.get(name).map(|error: Error| error.to_string());
        failure.note(&Error::new(ErrorKind::Protocol, "unreadable"), Some(&a));
        assert_eq!(text(Some(&a)).as_deref(), Some("lock \"a\": unreadable"));
        assert_eq!((text(Some(&b)), text(None)), (None, None));
        failure.note(&Error::new(ErrorKind::Unavailable, "refused"), Some(&a));
        assert_eq!(text(Some(&b)).as_deref(), Some("refused"));
        failure.note(&Error::new(ErrorKind::Protocol, "no such command"), None);
        assert_eq!(text(Some(&b)).as_deref(), Some("no such command"));
    }
}
