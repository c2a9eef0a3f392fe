//! The limit of requests that a session has under way, so that its heartbeats are answered in time.
//!
//! A server executes the requests of a session in their order. So a heartbeat, which renews all
//! locks of the session, waits for the requests before it. There may be thousands of acquires,
//! polls and releases. So at most [`MOST`](crate::session::MOST) of each kind are under way at a
//! time, and the others [wait](dlock_core::session::SessionBase::see_through_in), first in, first
//! out. Many claims that arrive at once thus enter in steps, each of which
//! [shares lists](crate::children).

use zookeeper_client::Error as ZkError;

use crate::{place::Spot, queue::Standing, session::Session};

impl Session {
    /// Sends a waiter's request, which changes nothing, until it is answered.
    pub(crate) async fn poll<T, F>(&self, send: impl FnMut() -> F) -> Result<T, ZkError>
    where
        F: Future<Output = Result<T, ZkError>>,
    {
        // The semaphore is never closed.
        let _permit = self.polls.acquire().await;
        self.read(send).await
    }

    /// Returns the state of a waiting claim.
    pub(crate) async fn standing_of_waiter(&self, spot: &Spot) -> Result<Standing, ZkError> {
        let _permit = self.polls.acquire().await;
        self.standing(spot, None).await
    }
}
