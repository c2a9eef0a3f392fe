//! How long harm is done, and how the servers are connected to.

use std::time::Duration;

use dlock_core::Clock;
use dlock_testkit::load::effort;
use tokio::time::sleep;

/// For how long a case does harm, without more effort.
const STORM: Duration = Duration::from_secs(5);

/// The time in which harm is done.
pub(crate) struct Storm {
    end: dlock_core::Instant,
    /// How often harm was done.
    pub(crate) faults: usize,
}

impl Storm {
    /// One that begins now.
    pub(crate) fn begin() -> Self {
        Self { end: Clock::Boot.now().saturating_add(STORM * effort()), faults: 0 }
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
}

/// The address with options that fit short leases, and these.
pub(crate) fn with_options(url: &str, options: &str) -> String {
    let and = if options.is_empty() { "" } else { "&" };
    format!("{url}?dlock.response_timeout=250ms{and}{options}")
}
