//! What the servers' clocks show, for whoever believes in leases that run by them.

use std::collections::HashMap;

use dlock_core::{Clock, ClockStep, Instant, StoreClock, StoreEvent};
use parking_lot::Mutex;
use tokio::sync::broadcast;

/// More steps of clocks than one failover of a cluster makes.
const EVENTS: usize = 256;

/// The clock of the server behind each shard: after a failover, or when a slot moves, another
/// server's, which the leases go by from then on.
#[derive(Debug)]
pub(crate) struct Watch {
    clocks: Mutex<HashMap<u32, StoreClock>>,
    events: broadcast::Sender<StoreEvent>,
}

impl Watch {
    pub(crate) fn new() -> Self {
        let (events, _) = broadcast::channel(EVENTS);
        Self { clocks: Mutex::default(), events }
    }

    /// An answer that has just come, to what was sent then, shows this clock, in microseconds.
    pub(crate) fn observe(&self, shard: u32, micros: u64, sent: Instant) {
        let mut clocks = self.clocks.lock();
        let step = clocks.entry(shard).or_default().observe(micros, sent, Clock::Boot.now());
        if let Some(ClockStep { forward, by }) = step {
            // Without locks over it, nobody listens.
            let _ = self.events.send(StoreEvent::ClockStep { shard, forward, by, seen: sent });
        }
    }

    pub(crate) fn events(&self) -> broadcast::Receiver<StoreEvent> {
        self.events.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000_000;

    #[test]
    fn each_shard_has_a_clock_of_its_own() {
        let (watch, epoch) = (Watch::new(), 1_700_000_000_000_000);
        let mut events = watch.events();
        for (shard, shows) in [(1, epoch), (2, epoch + HOUR), (1, epoch), (2, epoch + HOUR)] {
            watch.observe(shard, shows, Clock::Boot.now());
        }
        assert!(events.try_recv().is_err());
        let sent = Clock::Boot.now();
        watch.observe(1, epoch + HOUR, sent);
        let told = events.try_recv();
        assert!(
            matches!(told, Ok(StoreEvent::ClockStep { shard: 1, forward: true, seen, .. }) if seen == sent),
            "{told:?}"
        );
        assert!(events.try_recv().is_err());
    }
}
