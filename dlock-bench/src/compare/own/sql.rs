//! What the floors of all databases have in common.

use super::Own;

/// What a cycle is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    /// Takes a lock and gives it back.
    Lock,
    /// Writes a row.
    Row,
}

impl Does {
    pub(super) fn of(own: Own) -> Self {
        if own == Own::Row { Self::Row } else { Self::Lock }
    }
}
