//! The findings of an examination of a store.

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
}
