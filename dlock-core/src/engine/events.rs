//! What a store tells unasked: claims that it has ended, and steps of its clock.

use std::{collections::HashSet, time::Duration};

use tokio::sync::broadcast::{Receiver, error::RecvError};

use crate::{ClaimId, Instant, StoreEvent};

/// What was told by now.
#[derive(Default)]
pub(super) struct Told {
    pub(super) ended: HashSet<ClaimId>,
    pub(super) steps: Vec<Step>,
}

/// A step of the clock of a part of the store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) shard: u32,
    pub(super) forward: bool,
    pub(super) by: Duration,
    pub(super) seen: Instant,
}

impl Told {
    fn add(&mut self, event: StoreEvent) {
        match event {
            StoreEvent::Ended(claim) => drop(self.ended.insert(claim)),
            StoreEvent::ClockStep { shard, forward, by, seen } => {
                self.steps.push(Step { shard, forward, by, seen });
            }
        }
    }
}

/// Waits for the next that the store tells; `None` when it tells no more.
pub(super) async fn next(events: &mut Option<Receiver<StoreEvent>>) -> Option<Told> {
    let receiver = events.as_mut()?;
    let mut told = Told::default();
    match receiver.recv().await {
        Ok(event) => told.add(event),
        // Renewals will tell of the claims that were missed.
        Err(RecvError::Lagged(_)) => {}
        Err(RecvError::Closed) => {
            *events = None;
            return None;
        }
    }
    while let Ok(event) = receiver.try_recv() {
        told.add(event);
    }
    Some(told)
}

/// The forward steps that leases may have met which are still on their way here.
#[derive(Default)]
pub(super) struct Steps(Vec<Step>);

impl Steps {
    /// So many are enough: a lease that is on its way for longer has ended.
    const MOST: usize = 64;

    pub(super) fn add(&mut self, step: Step) {
        if self.0.len() >= Self::MOST {
            self.0.remove(0);
        }
        self.0.push(step);
    }

    /// By how much sooner a lease ends, by the holder's clock, that began then in this shard.
    pub(super) fn cut(&self, began: Instant, shard: impl Fn() -> u32) -> Duration {
        let met = self.0.iter().filter(|step| began < step.seen && step.shard == shard());
        met.fold(Duration::ZERO, |all, step| all.saturating_add(step.by))
    }
}
