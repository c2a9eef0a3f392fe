//! What a look at a store finds.

/// Something about how a store is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How much it matters.
    pub level: Level,
    /// What was looked at, in one or two words: `version`, `clock`, `eviction`.
    pub about: &'static str,
    /// What was found.
    pub found: String,
    /// What to do about it; `None` when nothing has to be done.
    pub remedy: Option<String>,
}

/// How much a [`Finding`] matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Level {
    /// As it should be.
    Fine,
    /// Locks work, but not as well or not as safely as they could, or nobody can tell.
    Warning,
    /// Locks do not work, or do not keep what dlock promises.
    Wrong,
}

impl Finding {
    /// All is well with this.
    pub fn fine(about: &'static str, found: impl Into<String>) -> Self {
        Self { level: Level::Fine, about, found: found.into(), remedy: None }
    }

    /// Something could be better, and how.
    pub fn warning(
        about: &'static str,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { level: Level::Warning, about, found: found.into(), remedy: Some(remedy.into()) }
    }

    /// Something has to be changed, and how.
    pub fn wrong(about: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { level: Level::Wrong, about, found: found.into(), remedy: Some(remedy.into()) }
    }
}
