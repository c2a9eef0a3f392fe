//! The faults of holders, stores and connections, and the promises that a store keeps under them.

use std::fmt;

use serde::Serialize;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Fault {
    /// A process of holders is killed.
    HolderKilled,
    /// One process or two are stopped, for up to several leases.
    HolderStopped,
    /// All threads of a process's runtime are blocked: no timer fires, and no lease is renewed.
    HolderStalled,
    /// The tasks of a process are aborted.
    TasksAborted,
    /// Most attempts of a process are cancelled.
    CancelStorm,
    /// The wall clock of all holders is wrong by a minute for a moment.
    HolderClock,
    /// All connections are reset or closed.
    ConnectionsCut,
    /// No data passes in either direction, and the connections stay open.
    HalfOpen,
    /// Requests take effect late, or never.
    RequestsHeld,
    /// Requests take effect, but their answers are lost.
    RepliesDropped,
    /// Answers are delayed.
    RepliesDelayed,
    /// Notifications of the store to waiters are lost.
    PushesLost,
    /// The server is stopped.
    ServerStopped,
    /// The server is killed, and starts again with its data.
    ServerKilled,
    /// The server is killed, and starts again without data.
    ServerEmptied,
    /// The server ends all sessions.
    SessionsEnded,
    /// The server forgets its scripts.
    ScriptsForgotten,
    /// The server's clock is a minute ahead for a moment.
    ClockAhead,
    /// The server's clock is a minute behind for a moment.
    ClockBehind,
    /// The server's clock steps forward and back several times.
    ClockStrobing,
    /// The master is killed and a replica takes its place.
    Failover,
    /// The master is killed, and a replica without the last grants takes its place.
    LaggingFailover,
    /// A replica takes the place of a master that runs.
    Takeover,
    /// The locks of a slot move to another master.
    SlotMoved,
    /// A minority of the servers is unreachable.
    MinorityAway,
    /// The leader of an ensemble is killed.
    LeaderKilled,
    /// The leader of an ensemble is stopped.
    LeaderStopped,
    /// The leader is cut off from the others.
    LeaderCut,
    /// The leader hands its leadership to another server.
    LeaderMoved,
    /// A follower is cut off from the others, but not from its clients.
    FollowerCut,
    /// All that one server of an ensemble and the others send each other is delayed.
    MemberSlow,
    /// One server of an ensemble is killed, stopped or cut off from the others. The next fault may
    /// follow before all servers serve again.
    MemberAway,
    /// The server removes old revisions, which waiters may watch from.
    HistoryCompacted,
}

/// The promises that a store keeps under a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Promise {
    /// All of them.
    All,
    /// All, except that holders may lose their locks before their leases expire.
    Exclusion,
    /// Two clients may hold the same lock, and held locks may be lost, until the leases from before
    /// the end of the fault have expired: the store has lost what it acknowledged, or its clock
    /// has let the leases expire. Tokens stay in order.
    Tokens,
}

/// The result of an attempt to inject a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The fault has proven that it took effect.
    Proven,
    /// The fault did not take effect, or nothing proves that it did.
    Missed(String),
}

impl Fault {
    /// The faults of holders, which every store allows.
    pub const HOLDERS: &'static [Self] = &[
        Self::HolderKilled,
        Self::HolderStopped,
        Self::HolderStalled,
        Self::TasksAborted,
        Self::CancelStorm,
        Self::HolderClock,
    ];

    /// The faults of connections.
    pub const NETWORK: &'static [Self] = &[
        Self::ConnectionsCut,
        Self::HalfOpen,
        Self::RequestsHeld,
        Self::RepliesDropped,
        Self::RepliesDelayed,
    ];

    /// The faults of a server's clock.
    pub const CLOCK: &'static [Self] = &[Self::ClockAhead, Self::ClockBehind, Self::ClockStrobing];
}

impl Effect {
    /// The effect of a fault that was seen, or not.
    pub(crate) fn seen(seen: bool, missed: &str) -> Self {
        if seen { Self::Proven } else { Self::Missed(missed.to_owned()) }
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
            Self::RequestsHeld => "requests held back",
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
            Self::Takeover => "takeover",
            Self::SlotMoved => "slot moved",
            Self::MinorityAway => "minority away",
            Self::LeaderKilled => "leader killed",
            Self::LeaderStopped => "leader stopped",
            Self::LeaderCut => "leader cut off",
            Self::LeaderMoved => "leader moved",
            Self::FollowerCut => "follower cut off",
            Self::MemberSlow => "member slow",
            Self::MemberAway => "member away",
            Self::HistoryCompacted => "history compacted",
        })
    }
}
