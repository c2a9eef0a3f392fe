//! How long harm is done, and how the servers are connected to.

use std::time::Duration;

use dlock_core::{Clock, Instant};
use dlock_testkit::{
    Stop,
    load::{Report, effort},
};
use tokio::time::sleep;

/// For how long a case does harm, without more effort.
const STORM: Duration = Duration::from_secs(4);

/// How many grants a verdict needs, also on a busy machine.
const GRANTS: usize = 100;

/// The time in which harm is done.
pub(crate) struct Storm {
    name: &'static str,
    end: Instant,
    faults: usize,
}

impl Storm {
    /// One that begins now.
    pub(crate) fn begin(name: &'static str) -> Self {
        Self { name, end: Clock::Boot.now().saturating_add(STORM * effort()), faults: 0 }
    }

    /// Waits for a random time up to this many milliseconds, and counts a fault; `false` when the
    /// storm is over.
    pub(crate) async fn next(&mut self, most: u64) -> bool {
        if Clock::Boot.now() >= self.end {
            return false;
        }
        sleep(Duration::from_millis(rand::random_range(most / 4..=most))).await;
        self.faults += 1;
        true
    }

    /// Says how it went, and checks that enough happened for a verdict.
    pub(crate) fn says<'a>(&self, report: &'a Report) -> Result<&'a Report, Stop> {
        println!("{}: {} faults, {report}", self.name, self.faults);
        match self.faults {
            0 => Err(Stop::failed("no fault was done")),
            _ => report.at_least(GRANTS),
        }
    }
}

/// The address with options that fit short leases and a look at what is left, and these.
pub(crate) fn with_options(url: &str, options: &str) -> String {
    let and = if options.is_empty() { "" } else { "&" };
    format!("{url}?dlock.response_timeout=500ms&dlock.retention=1s{and}{options}")
}
