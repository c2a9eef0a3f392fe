//! The common parts of the baselines of all databases.

use super::{NO_WAIT, Own, baseline::sql::owner};
use crate::{Failure, subject::Want};

/// The work of a cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    /// Acquires and releases a lock.
    Lock,
    /// Writes a row.
    Row,
}

impl Does {
    pub(super) fn of(own: Own) -> Self {
        if own == Own::Row { Self::Row } else { Self::Lock }
    }

    /// Returns the names of a cycle, each with its owner.
    pub(super) fn names(self, want: &Want<'_>) -> Result<Vec<(String, String)>, Failure> {
        let names: Vec<&str> = match want {
            Want::One(name) => vec![name],
            Want::All(names) => names.iter().map(String::as_str).collect(),
            Want::Fair(name) if self == Self::Row => vec![name],
            Want::Fair(_) | Want::Read(_) | Want::Write(_) => return Err(NO_WAIT.into()),
        };
        Ok(names.into_iter().map(|name| (name.to_owned(), owner(name))).collect())
    }
}
