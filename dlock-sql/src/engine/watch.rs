//! What the database's clock shows, for whoever believes in leases that run by it.

use dlock_core::{Clock, ClockStep, StoreClock, StoreEvent};
use parking_lot::Mutex;
use tokio::sync::broadcast;

use super::told::Sight;

/// So many steps of a clock nobody is behind.
const EVENTS: usize = 16;

/// The database's clock, as all connections of an engine see it.
#[derive(Debug)]
pub(crate) struct Watch {
    clock: Mutex<StoreClock>,
    events: broadcast::Sender<StoreEvent>,
}

impl Watch {
    pub(crate) fn new() -> Self {
        let (events, _) = broadcast::channel(EVENTS);
        Self { clock: Mutex::new(StoreClock::new()), events }
    }

    /// An answer that has just come.
    pub(crate) fn observe(&self, sight: Sight) {
        let step = self.clock.lock().observe(sight.now, sight.sent, Clock::Boot.now());
        if let Some(ClockStep { forward, by }) = step {
            // Without locks over it, nobody listens.
            let _ =
                self.events.send(StoreEvent::ClockStep { shard: 0, forward, by, seen: sight.sent });
        }
    }

    pub(crate) fn events(&self) -> broadcast::Receiver<StoreEvent> {
        self.events.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const HOUR: u64 = 3_600_000_000;

    #[test]
    fn a_step_of_the_database_s_clock_is_told_to_all_who_listen() {
        let watch = Watch::new();
        let (mut one, mut two) = (watch.events(), watch.events());
        let epoch = 1_700_000_000_000_000;
        watch.observe(Sight { sent: Clock::Boot.now(), now: epoch });
        watch.observe(Sight { sent: Clock::Boot.now(), now: epoch });
        assert!(one.try_recv().is_err());
        let sent = Clock::Boot.now();
        watch.observe(Sight { sent, now: epoch + HOUR });
        for events in [&mut one, &mut two] {
            match events.try_recv() {
                Ok(StoreEvent::ClockStep { shard: 0, forward: true, by, seen }) => {
                    assert!(by >= Duration::from_secs(3599) && seen == sent, "{by:?}, {seen:?}");
                }
                other => panic!("{other:?}"),
            }
        }
        watch.observe(Sight { sent: Clock::Boot.now(), now: epoch });
        let back = one.try_recv();
        assert!(matches!(back, Ok(StoreEvent::ClockStep { forward: false, .. })), "{back:?}");
    }
}
