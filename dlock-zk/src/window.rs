//! How much a session has on its way at a time, so that its heartbeats come through.
//!
//! A server serves the requests of a session in their order, so a heartbeat, by which all locks of
//! the session are renewed, waits for what was sent before. There may be thousands who ask for locks,
//! wait, or give locks back. So [a number](crate::session::MOST) of each of these kinds is on its way at
//! a time, and the others wait here, in the order in which they came. A crowd that comes at once is
//! thereby let in in steps, each of which [shares lists](crate::children).

use std::sync::Arc;

use dlock_core::{Certainty, Clock, Error};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use zookeeper_client::Error as ZkError;

use crate::{error::no_answer, place::Spot, queue::Standing, session::Session};

impl Session {
    /// Waits until one more may be on its way, for as long as the servers answer at all, and sees work
    /// [through](Self::see_through) which counts as that until it is done.
    ///
    /// # Errors
    /// `Unavailable` when no answer comes or the session ends: nothing was sent.
    pub(crate) async fn enter_window<T: Send + 'static>(
        &self,
        window: &Arc<Semaphore>,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let permit = match Arc::clone(window).try_acquire_owned() {
            Ok(permit) => permit,
            // Boxed: most find room.
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

    /// Sends a request of one that waits, which changes nothing, until it is answered.
    pub(crate) async fn poll<T, F>(&self, send: impl FnMut() -> F) -> Result<T, ZkError>
    where
        F: Future<Output = Result<T, ZkError>>,
    {
        // It is never closed.
        let _permit = self.polls.acquire().await;
        self.read(send).await
    }

    /// How the node of a claim stands that waits.
    pub(crate) async fn standing_of_waiter(&self, spot: &Spot) -> Result<Standing, ZkError> {
        let _permit = self.polls.acquire().await;
        self.standing(spot, None).await
    }
}
