//! The rules that a proxy follows.

use std::time::Duration;

/// The treatment of the bytes of one direction. It applies to open connections too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Flow {
    /// They pass.
    #[default]
    Pass,
    /// They are forwarded after this delay, or later.
    Delay(Duration),
    /// They wait until the rule changes, as in a network that is cut and heals.
    Hold,
    /// They are dropped for good. The peer can't parse the bytes that follow, so end the
    /// connections before the next change.
    Drop,
}

/// The treatment of new connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Door {
    /// They are forwarded.
    #[default]
    Open,
    /// They are accepted and never answered, whether the server runs or not.
    Silent,
    /// They are refused.
    Closed,
}

/// The state that the tasks watch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rules {
    pub(super) requests: Flow,
    pub(super) replies: Flow,
    pub(super) door: Door,
    /// Whether pushed messages of the server are dropped.
    pub(super) lose_pushes: bool,
    /// The connections up to this number are stranded.
    pub(super) stranded: u64,
    /// Whether the clients of the stranded connections have lost them.
    pub(super) abandoned: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Reset,
    Finish,
}
