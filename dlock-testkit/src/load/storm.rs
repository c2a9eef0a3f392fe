//! How long harm is done.

use std::time::Duration;

use dlock_core::{Clock, Instant};
use tokio::time::sleep;

use super::{Report, effort};
use crate::Stop;

/// For how long a case does harm, without more effort.
const STORM: Duration = Duration::from_secs(4);

/// How many grants a verdict needs, also on a busy machine.
const GRANTS: usize = 50;

/// The time in which harm is done: four seconds, times [`effort`].
#[derive(Debug)]
pub struct Storm {
    name: &'static str,
    end: Instant,
    faults: usize,
}

impl Storm {
    /// One that begins now.
    pub fn begin(name: &'static str) -> Self {
        Self { name, end: Clock::Boot.now().saturating_add(STORM * effort()), faults: 0 }
    }

    /// Waits for a random time up to this many milliseconds, and counts a fault; `false` when the
    /// storm is over.
    pub async fn next(&mut self, most: u64) -> bool {
        if Clock::Boot.now() >= self.end {
            return false;
        }
        sleep(Duration::from_millis(rand::random_range(most / 4..=most))).await;
        self.faults += 1;
        true
    }

    /// Says how it went, and checks that enough happened for a verdict.
    ///
    /// # Errors
    /// When too little did.
    pub fn says<'a>(&self, report: &'a Report) -> Result<&'a Report, Stop> {
        println!("{}: {} faults, {report}", self.name, self.faults);
        match self.faults {
            0 => Err(Stop::failed("no fault was done")),
            _ => report.at_least(GRANTS),
        }
    }
}
