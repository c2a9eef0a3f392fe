//! What a store tells a client unasked, and how the client hears of it.

use std::{error::Error, fmt, time::Duration};

use tokio::sync::broadcast::{self, error::RecvError};

use crate::{ClaimId, Instant};

/// What a store tells a client unasked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreEvent {
    /// The store has ended this claim.
    Ended(ClaimId),
    /// The store's clock was stepped, as a [`StoreClock`](crate::StoreClock) has seen.
    ClockStep {
        /// The part of the store whose clock it is: see [`Backend::shard`](crate::Backend::shard).
        shard: u32,
        /// Whether it was set forward.
        forward: bool,
        /// By how much, at the most.
        by: Duration,
        /// When the request was sent whose answer showed it: what was granted or renewed by a later
        /// one has not met it.
        seen: Instant,
    },
}

/// Tells the events of a store: a backend keeps one. Clones tell the same receivers.
#[derive(Clone, Debug)]
pub struct StoreEventSender(broadcast::Sender<StoreEvent>);

impl StoreEventSender {
    /// One whose receivers may be behind by about so many events, 1 to 65,536, before they miss
    /// some.
    pub fn new(behind: usize) -> Self {
        Self(broadcast::Sender::new(behind.clamp(1, 65_536)))
    }

    /// Tells all receivers, and says how many there are. It never waits.
    pub fn send(&self, event: StoreEvent) -> usize {
        // Without locks over the store, nobody listens.
        self.0.send(event).unwrap_or_default()
    }

    /// A receiver of the events from now on.
    pub fn subscribe(&self) -> StoreEvents {
        StoreEvents(self.0.subscribe())
    }
}

/// Receives the events of a store: what [`Backend::events`](crate::Backend::events) gives.
#[derive(Debug)]
pub struct StoreEvents(broadcast::Receiver<StoreEvent>);

impl StoreEvents {
    /// Waits for the next event.
    ///
    /// # Errors
    /// [`NoEvent::Missed`] when this receiver has fallen behind, and the next call goes on with the
    /// oldest event that is still there; [`NoEvent::Closed`] when nobody tells events any more.
    ///
    /// # Cancel safety
    /// It can be dropped at any time: no event is lost.
    pub async fn recv(&mut self) -> Result<StoreEvent, NoEvent> {
        self.0.recv().await.map_err(|error| match error {
            RecvError::Lagged(missed) => NoEvent::Missed(missed),
            RecvError::Closed => NoEvent::Closed,
        })
    }

    /// The next event, if it is there and none was missed before it.
    pub(crate) fn try_recv(&mut self) -> Option<StoreEvent> {
        self.0.try_recv().ok()
    }
}

/// Why there is no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoEvent {
    /// So many were missed: the receiver was too far behind.
    Missed(u64),
    /// There will be none: the store tells no more.
    Closed,
}

impl fmt::Display for NoEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missed(missed) => write!(f, "{missed} events of the store were missed"),
            Self::Closed => f.write_str("the store tells no more events"),
        }
    }
}

impl Error for NoEvent {}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn ended(bits: u128) -> StoreEvent {
        StoreEvent::Ended(ClaimId::from_bits(bits))
    }

    #[tokio::test]
    async fn a_slow_receiver_learns_how_many_events_it_missed() {
        let sender = StoreEventSender::new(2);
        let mut events = sender.subscribe();
        for bits in 0..5 {
            assert_eq!(sender.send(ended(bits)), 1);
        }
        drop(sender);
        assert_eq!(events.recv().await, Err(NoEvent::Missed(3)));
        assert_eq!(events.recv().await, Ok(ended(3)));
        assert_eq!(events.recv().await, Ok(ended(4)));
        assert_eq!(events.recv().await, Err(NoEvent::Closed));
    }

    #[tokio::test]
    async fn a_wait_that_is_dropped_loses_no_event() {
        let sender = StoreEventSender::new(2);
        let mut events = sender.subscribe();
        for bits in 0..3 {
            assert!(events.recv().now_or_never().is_none());
            sender.send(ended(bits));
            assert_eq!(events.recv().await, Ok(ended(bits)));
        }
    }

    #[test]
    fn events_that_nobody_hears_are_no_error() {
        assert_eq!(StoreEventSender::new(0).send(ended(1)), 0);
        assert_eq!(StoreEventSender::new(usize::MAX).send(ended(1)), 0);
    }
}
