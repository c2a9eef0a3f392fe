//! The future of a short verb.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use crate::Error;

/// The answer of a short verb ([`acquire`](crate::Backend::acquire),
/// [`release`](crate::Backend::release)): a result, or a future that owns all its data.
///
/// Because it borrows nothing, the core can run it to its end in the background if the caller is
/// dropped, so a backend never sees an unfinished verb dropped. Because it can be ready at once, a
/// store inside the process needs no allocation.
#[must_use = "a verb does nothing until it is awaited"]
pub struct Answer<T>(State<T>);

enum State<T> {
    Ready(Option<Result<T, Error>>),
    Later(Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>),
}

impl<T> Answer<T> {
    /// Creates an answer that is known at once.
    pub const fn ready(result: Result<T, Error>) -> Self {
        Self(State::Ready(Some(result)))
    }

    /// Creates an answer from a future. The future must do nothing before its first poll.
    pub fn later(future: impl Future<Output = Result<T, Error>> + Send + 'static) -> Self {
        Self(State::Later(Box::pin(future)))
    }

    /// Returns the result if it is already known.
    ///
    /// # Errors
    /// The answer itself, which the caller then awaits.
    pub fn try_ready(self) -> Result<Result<T, Error>, Self> {
        match self.0 {
            State::Ready(Some(result)) => Ok(result),
            other => Err(Self(other)),
        }
    }
}

// The result is moved in and out as a whole and never pinned.
impl<T> Unpin for Answer<T> {}

impl<T> Future for Answer<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            State::Ready(result) => match result.take() {
                Some(result) => Poll::Ready(result),
                None => Poll::Pending,
            },
            State::Later(future) => future.as_mut().poll(cx),
        }
    }
}

impl<T> fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            State::Ready(_) => "Answer::Ready",
            State::Later(_) => "Answer::Later",
        })
    }
}
