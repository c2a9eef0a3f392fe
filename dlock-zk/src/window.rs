//! The limit of requests that a session has under way, so that its heartbeats are answered in time.
//!
//! A server executes the requests of a session in their order. So a heartbeat, which renews all
//! locks of the session, waits for the requests before it. There may be thousands of acquires,
//! polls and releases. So at most [`MOST`](crate::session::MOST) of each kind are under way at a
//! time, and the others wait here, first in, first out. Many claims that arrive at once thus enter
//! in steps, each of which [shares lists](crate::children).

use std::sync::Arc;

use dlock_core::{Certainty, Clock, Error};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use zookeeper_client::Error as ZkError;

use crate::{error::no_answer, place::Spot, queue::Standing, session::Session};

impl Session {
    /// Waits for room in the window, as long as the servers answer at all. Then it runs the work
    /// [to its end](Self::see_through), which occupies the window until then.
    ///
    /// # Errors
    /// `Unavailable` if no answer arrives or the session ends before there is room: nothing was
    /// sent.
    pub(crate) async fn enter_window<T: Send + 'static>(
        &self,
        window: &Arc<Semaphore>,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let permit = match Arc::clone(window).try_acquire_owned() {
            Ok(permit) => permit,
            // Boxed, since most requests find room at once.
            Err(_) => Box::pin(self.enter_later(window)).await?,
        };
        self.see_through(async move {
            let done = work.await;
            drop(permit);
            done
        })
        .await
    }

    async fn enter_later(&self, window: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Error> {
        let not_sent = || no_answer().with_certainty(Certainty::NotApplied);
        let began = Clock::Boot.now();
        let mut permit = std::pin::pin!(Arc::clone(window).acquire_owned());
        loop {
            tokio::select! {
                permit = &mut permit => return permit.map_err(|_| not_sent()),
                () = self.until_over() => return Err(not_sent()),
                () = tokio::time::sleep(self.patience()) => {
                    let silent = Clock::Boot.now().since(self.beat().max(began));
                    if silent >= self.patience() {
                        return Err(not_sent());
                    }
                }
            }
        }
    }

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
