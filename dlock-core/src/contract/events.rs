//! Notifications from a store to a client, and their receivers.

use std::{error::Error, fmt, time::Duration};

use tokio::sync::broadcast::{self, error::RecvError};

use crate::{ClaimId, Instant};

/// A notification from a store that no request asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreEvent {
    /// The store has ended this claim.
    Ended(ClaimId),
    /// The store's clock was stepped, as detected by a [`StoreClock`](crate::StoreClock).
    ClockStep {
        /// The part of the store that uses the clock: see
        /// [`Backend::shard`](crate::Backend::shard).
        shard: u32,
        /// Whether the clock was set forward.
        forward: bool,
        /// The largest possible size of the step.
        by: Duration,
        /// The time at which the client sent the request whose answer showed the step. Grants and
        /// renewals of later requests are not affected.
        seen: Instant,
    },
}

/// Sends the events of a store. A backend owns one. Clones send to the same receivers.
#[derive(Clone, Debug)]
pub struct StoreEventSender(broadcast::Sender<StoreEvent>);

impl StoreEventSender {
    /// Creates a sender whose receivers miss events if they fall behind by more than about `behind`
    /// events, 1 to 65,536.
    pub fn new(behind: usize) -> Self {
        Self(broadcast::Sender::new(behind.clamp(1, 65_536)))
    }

    /// Sends the event to all receivers, and returns their number. It never waits.
    pub fn send(&self, event: StoreEvent) -> usize {
        // Before locks are made over the store, there is no receiver.
        self.0.send(event).unwrap_or_default()
    }

    /// Returns a receiver of all future events.
    pub fn subscribe(&self) -> StoreEvents {
        StoreEvents(self.0.subscribe())
    }
}

/// Receives the events of a store. Created by [`Backend::events`](crate::Backend::events).
#[derive(Debug)]
pub struct StoreEvents(broadcast::Receiver<StoreEvent>);

impl StoreEvents {
    /// Waits for the next event.
    ///
    /// # Errors
    /// [`NoEvent::Missed`] if this receiver has fallen behind; the next call then returns the
    /// oldest remaining event. [`NoEvent::Closed`] if no sender is left.
    ///
    /// # Cancel safety
    /// The future can be dropped at any time: no event is lost.
    pub async fn recv(&mut self) -> Result<StoreEvent, NoEvent> {
        self.0.recv().await.map_err(|error| match error {
            RecvError::Lagged(missed) => NoEvent::Missed(missed),
            RecvError::Closed => NoEvent::Closed,
        })
    }

    /// Returns the next event if it is available and no event was missed before it.
    pub(crate) fn try_recv(&mut self) -> Option<StoreEvent> {
        self.0.try_recv().ok()
    }
}

/// The reason that no event was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoEvent {
    /// The number of events that this receiver missed because it fell behind.
    Missed(u64),
    /// No further event will arrive: the store has no sender.
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
