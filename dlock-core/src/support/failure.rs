//! The last failure of the store, for the errors of waits that ended without any answer.
//!
//! # Concurrency
//!
//! The error changes under its mutex. With `known`, calls that succeed skip the mutex. `asking`
//! allows one abandoned request at a time. Both are hints, so their accesses are relaxed: after an
//! answer and a failure at the same time, either of them may be recorded as the last.

use std::{sync::Arc, time::Duration};

use super::tasks::Tasks;
use crate::{
    Error, ErrorKind,
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
    asking: AtomicBool,
}

impl LastFailure {
    /// Records a failure of the store.
    pub(crate) fn note(&self, error: &Error) {
        if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Protocol) {
            *self.error.lock() = Some(error.clone());
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

    /// Records the result of a request.
    pub(crate) fn look_at<T>(&self, answer: &Result<T, Error>) {
        match answer {
            Ok(_) => self.over(),
            Err(error) => self.note(error),
        }
    }

    /// Completes an abandoned request in the background, one at a time.
    pub(crate) fn wait_for<T: Send + 'static>(
        self: &Arc<Self>,
        tasks: &Tasks,
        question: impl Future<Output = T> + Send + 'static,
    ) {
        if !self.asking.swap(true, Ordering::Relaxed) {
            let this = Arc::clone(self);
            tasks.spawn(async move {
                drop(question.await);
                this.asking.store(false, Ordering::Relaxed);
            });
        }
    }

    pub(crate) fn get(&self) -> Option<Error> {
        self.error.lock().clone()
    }

    /// Returns the error of a request that was not answered within this time.
    pub(crate) fn no_answer(&self, within: Duration) -> Error {
        let error =
            |rest| Error::new(ErrorKind::Unavailable, format!("no answer within {within:?}{rest}"));
        match self.get() {
            Some(last) => error(format!("; the last error was: {last}")).with_source(last),
            None => error(": check the store and the network".to_owned()),
        }
    }
}
