//! The future of a short verb.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use crate::Error;

/// What a short verb ([`acquire`](crate::Backend::acquire), [`release`](crate::Backend::release))
/// answers: at once, or by a future that owns all it needs.
///
/// Because it borrows nothing, the core can let it run on to its end in the background when the
/// caller goes away, so that a backend never sees a verb dropped half-way. Because it can be
/// ready at once, a store inside the process costs no allocation.
#[must_use = "a verb does nothing until it is awaited"]
pub struct Answer<T>(State<T>);

enum State<T> {
    Ready(Option<Result<T, Error>>),
    Later(Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>),
}

impl<T> Answer<T> {
    /// Known at once.
    pub const fn ready(result: Result<T, Error>) -> Self {
        Self(State::Ready(Some(result)))
    }

    /// Known when the future ends. Nothing may happen before it is first polled.
    pub fn later(future: impl Future<Output = Result<T, Error>> + Send + 'static) -> Self {
        Self(State::Later(Box::pin(future)))
    }

    /// The result when it is known already, else the answer to await.
    ///
    /// # Errors
    /// The answer itself, to be awaited.
    pub fn try_ready(self) -> Result<Result<T, Error>, Self> {
        match self.0 {
            State::Ready(Some(result)) => Ok(result),
            other => Err(Self(other)),
        }
    }
}

// The result is moved in and out whole and never pinned.
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
