//! What is done to holders, to stores, and to what is between them.

use std::fmt;

use serde::Serialize;

/// A way to do harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Fault {
    /// A process of holders is killed.
    HolderKilled,
    /// A process stands still, for up to several leases.
    HolderStopped,
    /// All threads of a process's runtime are kept busy: no timer fires, nothing is renewed.
    HolderStalled,
    /// The tasks of a process are aborted where they are.
    TasksAborted,
    /// Most attempts of a process are dropped half-way.
    CancelStorm,
    /// The wall clock of all holders is a minute off for a moment.
    HolderClock,
    /// All connections are reset or closed.
    ConnectionsCut,
    /// Nothing passes in either direction, and nobody is told.
    HalfOpen,
    /// What is asked is done, and no answer arrives.
    RepliesDropped,
    /// Answers come late.
    RepliesDelayed,
    /// What the store tells waiters is lost.
    PushesLost,
    /// The server stands still.
    ServerStopped,
    /// The server is killed, and comes back with what it had.
    ServerKilled,
    /// The server is killed, and comes back with nothing.
    ServerEmptied,
    /// The server ends all sessions.
    SessionsEnded,
    /// The server forgets its scripts.
    ScriptsForgotten,
    /// The server's clock is a minute ahead for a moment.
    ClockAhead,
    /// The server's clock is a minute behind for a moment.
    ClockBehind,
    /// The server's clock goes to and fro.
    ClockStrobing,
    /// The master is killed and a replica takes its place.
    Failover,
    /// The same, with a replica that had not heard of the last grants.
    LaggingFailover,
    /// A minority of the servers is away.
    MinorityAway,
    /// The leader of an ensemble is killed.
    LeaderKilled,
    /// The leader of an ensemble stands still.
    LeaderStopped,
    /// The leader is cut off from the others.
    LeaderCut,
    /// A follower is cut off from the others, but not from its clients.
    FollowerCut,
}

/// What came of an attempt to do harm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Bite {
    /// It is proven to have happened.
    Bit,
    /// It did not happen, or nothing shows that it did.
    Missed(String),
}

impl Fault {
    /// What can be done to holders of any store.
    pub(super) const HOLDERS: [Self; 6] = [
        Self::HolderKilled,
        Self::HolderStopped,
        Self::HolderStalled,
        Self::TasksAborted,
        Self::CancelStorm,
        Self::HolderClock,
    ];

    /// What can be done to connections.
    pub(super) const NETWORK: [Self; 4] =
        [Self::ConnectionsCut, Self::HalfOpen, Self::RepliesDropped, Self::RepliesDelayed];

    /// Whether two may believe in the same lock after it, and what is held may be forgotten: the
    /// store has lost what it acknowledged, or its clock has ended the leases.
    pub(super) const fn may_let_two_in(self) -> bool {
        matches!(
            self,
            Self::ServerEmptied
                | Self::LaggingFailover
                | Self::ClockAhead
                | Self::ClockBehind
                | Self::ClockStrobing
        )
    }

    /// Whether nobody could reach the store meanwhile, or hear of it.
    pub(super) const fn takes_store_away(self) -> bool {
        matches!(
            self,
            Self::HalfOpen | Self::RepliesDropped | Self::ServerStopped | Self::ServerKilled
        )
    }

    /// Whether the clock that leases run by may have been ahead.
    pub(super) const fn steps_clock(self) -> bool {
        matches!(
            self,
            Self::HolderClock | Self::ClockAhead | Self::ClockBehind | Self::ClockStrobing
        )
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HolderKilled => "holder killed",
            Self::HolderStopped => "holder stopped",
            Self::HolderStalled => "holder stalled",
            Self::TasksAborted => "tasks aborted",
            Self::CancelStorm => "cancel storm",
            Self::HolderClock => "holders' clock ±60 s",
            Self::ConnectionsCut => "connections cut",
            Self::HalfOpen => "half-open",
            Self::RepliesDropped => "replies dropped",
            Self::RepliesDelayed => "replies delayed",
            Self::PushesLost => "notifications lost",
            Self::ServerStopped => "server stopped",
            Self::ServerKilled => "server killed",
            Self::ServerEmptied => "data lost",
            Self::SessionsEnded => "sessions ended",
            Self::ScriptsForgotten => "scripts forgotten",
            Self::ClockAhead => "clock +60 s",
            Self::ClockBehind => "clock -60 s",
            Self::ClockStrobing => "clock strobes",
            Self::Failover => "failover",
            Self::LaggingFailover => "lagging failover",
            Self::MinorityAway => "minority away",
            Self::LeaderKilled => "leader killed",
            Self::LeaderStopped => "leader stopped",
            Self::LeaderCut => "leader cut off",
            Self::FollowerCut => "follower cut off",
        })
    }
}
