//! How a call fails, and what helps.

use std::borrow::Cow;

use dlock_core::{Certainty, ConfigIssue, Error, ErrorKind};

/// A call that failed.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) error: Error,
    pub(crate) cure: Cure,
}

/// What helps against a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cure {
    /// Sending the same again, soon.
    Retry,
    /// The same, a few times without a pause: somebody else's write was in the way.
    AtOnce,
    /// The same, soon, without a row that somebody else may keep locked.
    Apart,
    /// Nobody knows: perhaps sending the same again, later, or without one of the rows.
    Unclear,
    /// Nothing that this program can do.
    None,
}

impl Fault {
    /// The database can't be used like this.
    pub(crate) fn config(issue: ConfigIssue, text: impl Into<Cow<'static, str>>) -> Self {
        Error::config(issue, text).into()
    }

    /// It may pass by itself, and nothing was applied.
    pub(crate) fn passing(text: impl Into<Cow<'static, str>>) -> Self {
        Self::cut(text).with_certainty(Certainty::NotApplied)
    }

    /// The same, but somebody has to do something first.
    pub(crate) fn stuck(text: impl Into<Cow<'static, str>>) -> Self {
        Self::passing(text).with_cure(Cure::None)
    }

    /// There was no answer, so nobody knows what was applied. It may pass by itself.
    pub(crate) fn cut(text: impl Into<Cow<'static, str>>) -> Self {
        let error = Error::new(ErrorKind::Unavailable, text);
        Self { error: error.with_certainty(Certainty::Unknown), cure: Cure::Retry }
    }

    /// The tables are those of a later version than ours.
    pub(crate) fn newer(found: i64, ours: i64) -> Self {
        Self::config(
            ConfigIssue::SchemaNewer,
            format!(
                "the tables have version {found}, this program knows {ours}: run the same version \
                 of dlock everywhere"
            ),
        )
    }

    /// A statement came past its deadline. Its answer has told the time, so that the next one will not.
    pub(crate) fn too_late() -> Self {
        Self::passing(
            "the request came to the database too late and had no effect: check whether the \
             database is overloaded or its clock jumps, or raise dlock.response_timeout",
        )
        .with_cure(Cure::AtOnce)
    }

    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(crate) fn is_of_missing_tables(&self) -> bool {
        self.error.kind() == ErrorKind::Config(ConfigIssue::SchemaMissing)
    }

    pub(crate) fn with_cure(self, cure: Cure) -> Self {
        Self { cure, ..self }
    }

    pub(crate) fn with_certainty(self, certainty: Certainty) -> Self {
        Self { error: self.error.with_certainty(certainty), ..self }
    }

    /// With what the driver says.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn with_source(
        self,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self { error: self.error.with_source(source), ..self }
    }

    /// The same of a connection that could not be had: nothing was applied, and no row is in the way.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(crate) fn before_anything_was_sent(self) -> Self {
        let cure = match self.cure {
            Cure::Apart | Cure::Unclear => Cure::Retry,
            cure => cure,
        };
        self.with_cure(cure).with_certainty(Certainty::NotApplied)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self { error, cure: Cure::None }
    }
}

/// For who does not try again.
impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        fault.error
    }
}
