//! The future of a short verb.
//!
//! # Concurrency
//!
//! A [`SendFlag`] changes once: to begun by the task that sends the request, or to given up by the
//! core. The first change decides, and nothing else is ordered by it, so its accesses are relaxed.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use crate::{
    Error,
    sync::atomic::{AtomicU8, Ordering},
};

/// The answer of a short verb ([`acquire`](crate::Backend::acquire),
/// [`release`](crate::Backend::release)): a result, or a future that owns all its data.
///
/// Because it borrows nothing, the core can run it to its end in the background if the caller is
/// dropped, so a backend never sees a request dropped that was sent. Because it can be ready at
/// once, a store inside the process needs no allocation.
///
/// A request that waits for its turn in the client can say so ([`unsent`](Self::unsent)). If its
/// caller has gone before its turn, its future is dropped, and it is not sent at all.
#[must_use = "a verb does nothing until it is awaited"]
pub struct Answer<T>(State<T>);

enum State<T> {
    Ready(Option<Result<T, Error>>),
    Later(Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>, Option<SendFlag>),
    /// The request was not sent, and never will be. There is no answer.
    GivenUp,
}

/// Whether a request that waits for its turn has been sent: see [`Answer::unsent`].
#[derive(Clone, Debug, Default)]
pub struct SendFlag(Arc<AtomicU8>);

/// The request waits for its turn.
const WAITS: u8 = 0;
/// It is being sent, or was sent.
const BEGUN: u8 = 1;
/// Its caller has gone, and it will not be sent.
const GIVEN_UP: u8 = 2;

impl SendFlag {
    /// Creates the flag of a request that waits for its turn.
    pub fn new() -> Self {
        Self(Arc::new(AtomicU8::new(WAITS)))
    }

    /// Records that the request is sent from now on, and returns true. Returns false if its caller
    /// has given it up: then it must not be sent.
    pub fn begin(&self) -> bool {
        #[cfg(dlock_schedules)]
        if crate::sync::sends_anyway() {
            return true;
        }
        let begun = self.0.compare_exchange(WAITS, BEGUN, Ordering::Relaxed, Ordering::Relaxed);
        begun != Err(GIVEN_UP)
    }

    /// Returns whether the request still waits for its turn.
    fn waits(&self) -> bool {
        self.0.load(Ordering::Relaxed) == WAITS
    }

    /// Gives the request up, unless it has begun. Returns whether it is given up.
    fn give_up(&self) -> bool {
        let given_up =
            self.0.compare_exchange(WAITS, GIVEN_UP, Ordering::Relaxed, Ordering::Relaxed);
        given_up != Err(BEGUN)
    }
}

impl<T> Answer<T> {
    /// Creates an answer that is known at once.
    pub const fn ready(result: Result<T, Error>) -> Self {
        Self(State::Ready(Some(result)))
    }

    /// Creates an answer from a future. The future must do nothing before its first poll.
    pub fn later(future: impl Future<Output = Result<T, Error>> + Send + 'static) -> Self {
        Self(State::Later(Box::pin(future), None))
    }

    /// Creates an answer from a future whose request may wait for its turn in the client, because
    /// the client sends a limited number of requests at a time.
    ///
    /// `request` gets the flag of the request, and returns the future, which must do nothing before
    /// its first poll.
    ///
    /// Contract: the request calls [`SendFlag::begin`] right before it is first sent, from the
    /// future or from the task that sends it, and is not sent if the result is false. Until then the
    /// future may be dropped at any await, and the store never learns of the claim. From then on the
    /// core runs the future to its end, as that of [`later`](Self::later).
    pub fn unsent<F>(request: impl FnOnce(SendFlag) -> F) -> Self
    where
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let flag = SendFlag::new();
        Self(State::Later(Box::pin(request(flag.clone())), Some(flag)))
    }

    /// Creates the answer of a wrapper from this one. It can be given up as long as this one can.
    pub fn wrap<U, F>(self, wrapper: impl FnOnce(Self) -> F) -> Answer<U>
    where
        F: Future<Output = Result<U, Error>> + Send + 'static,
    {
        let flag = match &self.0 {
            State::Later(_, flag) => flag.clone(),
            State::Ready(_) | State::GivenUp => None,
        };
        Answer(State::Later(Box::pin(wrapper(self)), flag))
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

    /// Returns whether its request waits for its turn.
    pub(crate) fn is_unsent(&self) -> bool {
        matches!(&self.0, State::Later(_, Some(flag)) if flag.waits())
    }

    /// Returns whether its request was given up.
    pub(crate) const fn is_given_up(&self) -> bool {
        matches!(self.0, State::GivenUp)
    }

    /// Gives the request up and drops its future, if it was not sent. Returns whether it is given
    /// up. From then on the answer stays pending.
    pub(crate) fn give_up(&mut self) -> bool {
        let given_up = match &self.0 {
            State::Later(_, Some(flag)) => flag.give_up(),
            State::Later(_, None) | State::Ready(_) => false,
            State::GivenUp => true,
        };
        if given_up {
            self.0 = State::GivenUp;
        }
        given_up
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
            State::Later(future, _) => future.as_mut().poll(cx),
            State::GivenUp => Poll::Pending,
        }
    }
}

impl<T> fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            State::Ready(_) => "Answer::Ready",
            State::Later(..) => "Answer::Later",
            State::GivenUp => "Answer::GivenUp",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unsent() -> (SendFlag, Answer<()>) {
        let mut flag = SendFlag::new();
        let answer = Answer::unsent(|of_it| {
            flag = of_it;
            std::future::pending()
        });
        (flag, answer)
    }

    #[test]
    fn a_request_is_sent_or_given_up() {
        let (flag, mut answer) = unsent();
        assert!(answer.is_unsent() && answer.give_up() && answer.give_up());
        assert!(!flag.begin() && answer.is_given_up() && !answer.is_unsent());
        let (flag, mut answer) = unsent();
        assert!(flag.begin() && flag.begin(), "it is sent again");
        assert!(!answer.is_unsent() && !answer.give_up() && !answer.is_given_up());
    }

    #[test]
    fn a_wrapped_request_can_be_given_up() {
        let (flag, answer) = unsent();
        let mut answer: Answer<()> = answer.wrap(|answer| answer);
        assert!(answer.give_up() && !flag.begin());
        let mut answer: Answer<()> = Answer::later(std::future::pending()).wrap(|answer| answer);
        assert!(!answer.is_unsent() && !answer.give_up());
    }
}
