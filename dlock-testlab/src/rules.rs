//! What a proxy is told to do.

use std::time::Duration;

/// What happens to the bytes of one direction. It holds for connections that are open, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Flow {
    /// They pass.
    #[default]
    Pass,
    /// They pass so much later, or later still.
    Delay(Duration),
    /// They wait until this changes, as in a network that is cut and heals.
    Hold,
    /// They are gone for good. What passes afterwards is not what the peer expects, so end the
    /// connections before.
    Drop,
}

/// What happens to new connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Door {
    /// They are passed on.
    #[default]
    Open,
    /// They are accepted and never answered, whether the server is there or not.
    Silent,
    /// They are refused.
    Closed,
}

/// What the tasks listen to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rules {
    pub(super) requests: Flow,
    pub(super) replies: Flow,
    pub(super) door: Door,
    /// Whether what the server sends unasked gets lost.
    pub(super) lose_pushes: bool,
    /// The connections up to this number are stranded.
    pub(super) stranded: u64,
    /// Whether the clients of those have lost them.
    pub(super) abandoned: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Reset,
    Finish,
}
