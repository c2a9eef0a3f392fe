//! The findings of an examination of a store.

use std::time::{Duration, SystemTime};

/// A fact about the configuration of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The importance of the finding.
    pub level: Level,
    /// The examined thing, in one or two words: `version`, `clock`, `eviction`.
    pub about: &'static str,
    /// The observation.
    pub found: String,
    /// The remedy; `None` if nothing has to be done.
    pub remedy: Option<String>,
}

/// The importance of a [`Finding`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Level {
    /// No problem.
    Fine,
    /// Locks work, but not as well or as safely as they could, or the store does not reveal it.
    Warning,
    /// Locks do not work, or do not keep dlock's promises.
    Wrong,
}

impl Finding {
    /// Creates a finding without a problem.
    pub fn fine(about: &'static str, found: impl Into<String>) -> Self {
        Self { level: Level::Fine, about, found: found.into(), remedy: None }
    }

    /// Creates a finding about a possible improvement, with its remedy.
    pub fn warning(
        about: &'static str,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { level: Level::Warning, about, found: found.into(), remedy: Some(remedy.into()) }
    }

    /// Creates a finding about something that has to be changed, with its remedy.
    pub fn wrong(about: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { level: Level::Wrong, about, found: found.into(), remedy: Some(remedy.into()) }
    }

    /// Returns the finding about a store's clock that now shows this time since 1970, for stores
    /// whose leases expire by that clock.
    pub fn clock(shows: Duration) -> Self {
        let here = here();
        let (by, how) = match shows.checked_sub(here) {
            Some(ahead) => (ahead, "ahead of"),
            None => (here.saturating_sub(shows), "behind"),
        };
        if by <= TOLERANCE {
            return Self::fine("clock", "the server's clock agrees with that of this machine");
        }
        Self::warning(
            "clock",
            format!("the server's clock is {} s {how} that of this machine", by.as_secs()),
            "synchronize both clocks (check with chronyc tracking): leases expire by the server's \
             clock, so they are right now, but when that clock is corrected, leases end early or \
             late by the difference",
        )
    }
}

/// The accepted difference of two clocks, including the time that the request took.
const TOLERANCE: Duration = Duration::from_secs(2);

/// Returns the time since 1970 by this machine's clock.
#[expect(clippy::disallowed_methods, reason = "it is reported, and decides nothing")]
fn here() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;

    #[test]
    fn a_clock_far_from_the_local_one_is_reported() {
        let (here, hour) = (here(), Duration::from_secs(3600));
        for (shows, level, says) in [
            (here, Level::Fine, "that of this machine"),
            (here + hour, Level::Warning, "ahead of"),
            (here - hour, Level::Warning, "behind"),
            (Duration::ZERO, Level::Warning, "behind"),
        ] {
            let finding = Finding::clock(shows);
            assert_eq!(finding.level, level, "{finding:?}");
            assert!(finding.found.contains(says), "{finding:?}");
        }
    }
}
