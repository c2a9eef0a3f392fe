//! The table of the stores that faults are injected into: each with its topology, its faults, and
//! the promises that it keeps under them. The command and the fault tests of the backends use it.

use dlock_testkit::Stop;

use super::{
    fault::{Fault, Promise},
    topology::{
        Connect, Plain, Topology,
        ensemble::Three,
        redis::{Cluster, Quorum, Sentinel},
        single::Single,
    },
};

/// Faults, and the promise that a store keeps under each of them.
pub type FaultRow = (Promise, &'static [Fault]);

/// The faults of a store.
pub type FaultRows = &'static [FaultRow];

/// A private store, which is started for a run.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Setup {
    /// The name, as in `private:redis`.
    pub name: &'static str,
    /// The name in `DLOCK_TEST_REQUIRE`.
    pub store: &'static str,
    /// A description for people.
    pub what: &'static str,
    /// The smallest number of grants a minute for a verdict.
    pub grants: u32,
    /// The faults that can be injected into its holders or into the store.
    pub rows: FaultRows,
}

/// The name of the store with a restart guard.
const GUARDED: &str = "redis-guarded";

/// The description of a store that loses its data.
const COPY: &str = "one server, restored from an old copy";

const MANY: u32 = 5000;
/// The smallest number of grants a minute for a slower store.
pub(crate) const FEW: u32 = 2000;

/// The rows of a store without faults of its own.
pub(crate) const HOLDERS: FaultRows = &[(Promise::All, Fault::HOLDERS)];

/// All private stores.
pub static SETUPS: &[Setup] = {
    use Fault::{
        CancelStorm, Failover, FollowerCut, HistoryCompacted, HolderClock, HolderKilled,
        HolderStalled, HolderStopped, LaggingFailover, LeaderCut, LeaderKilled, LeaderMoved,
        LeaderStopped, MemberAway, MemberSlow, MinorityAway, PushesLost, ScriptsForgotten,
        ServerEmptied, ServerKilled, ServerStopped, SessionsEnded, SlotMoved, Takeover,
        TasksAborted,
    };
    use Promise::{All, Exclusion, Tokens};

    const OF_HOLDERS: FaultRow = (All, Fault::HOLDERS);
    const OF_NETWORK: FaultRow = (All, Fault::NETWORK);
    const OF_CLOCK: FaultRow = (Tokens, Fault::CLOCK);
    const ONE_WITH_SESSIONS: FaultRows =
        &[OF_HOLDERS, OF_NETWORK, (All, &[PushesLost, ServerStopped, ServerKilled])];

    &[
        setup("memory", "memory", "tasks of one process", MANY),
        setup("sqlite", "sqlite", "a file", FEW).with(&[
            (All, &[HolderKilled, HolderStopped, HolderStalled, TasksAborted, CancelStorm]),
            // The store uses the clock of the machine.
            (Tokens, &[HolderClock]),
        ]),
        setup("redis", "redis", "one server, every write on disk", MANY).with(&[
            OF_HOLDERS,
            OF_NETWORK,
            (All, &[PushesLost, ServerStopped, ServerKilled, SessionsEnded, ScriptsForgotten]),
            OF_CLOCK,
        ]),
        setup("redis-forgetful", "redis", "one server that keeps nothing", MANY).with(&[
            OF_HOLDERS,
            OF_NETWORK,
            (All, &[PushesLost, ServerStopped, SessionsEnded, ScriptsForgotten]),
            (Tokens, &[ServerEmptied]),
        ]),
        setup(GUARDED, "redis", "one server that keeps nothing, restart guard", FEW).with(&[
            OF_HOLDERS,
            OF_NETWORK,
            (Exclusion, &[ServerEmptied]),
        ]),
        setup("redis-sentinel", "redis", "a master and two replicas", FEW).with(&[
            OF_HOLDERS,
            (All, &[Failover]),
            (Tokens, &[LaggingFailover]),
        ]),
        setup("redis-cluster", "redis", "three masters with a replica each", FEW)
            .with(&[OF_HOLDERS, (All, &[Takeover, SlotMoved])]),
        setup("redis-quorum", "redis", "five masters that keep nothing, restart guard", FEW)
            .with(&[OF_HOLDERS, (All, &[MinorityAway, ServerStopped])]),
        setup("postgres", "postgres", "one server", MANY).with(&[
            OF_HOLDERS,
            OF_NETWORK,
            (All, &[PushesLost, ServerStopped, ServerKilled, SessionsEnded]),
            OF_CLOCK,
        ]),
        setup("postgres-forgetful", "postgres", COPY, MANY).with(&[
            OF_HOLDERS,
            OF_NETWORK,
            (All, &[PushesLost, ServerStopped, SessionsEnded]),
            (Tokens, &[ServerEmptied]),
        ]),
        setup("mysql", "mysql", "one server", MANY).with(&[
            OF_HOLDERS,
            OF_NETWORK,
            (All, &[ServerStopped, ServerKilled, SessionsEnded]),
            OF_CLOCK,
        ]),
        setup("mysql-forgetful", "mysql", COPY, MANY).with(&[
            OF_HOLDERS,
            OF_NETWORK,
            (All, &[ServerStopped, SessionsEnded]),
            (Tokens, &[ServerEmptied]),
        ]),
        setup("zk-single", "zk", "one server", FEW).with(ONE_WITH_SESSIONS),
        setup("zk", "zk", "an ensemble of three", FEW).with(&[
            OF_HOLDERS,
            OF_NETWORK,
            (All, &[PushesLost, LeaderKilled, LeaderStopped, LeaderCut, FollowerCut, MemberAway]),
        ]),
        setup("etcd-single", "etcd", "one server", FEW).with(ONE_WITH_SESSIONS),
        setup("etcd", "etcd", "a cluster of three", FEW).with(&[
            OF_HOLDERS,
            OF_NETWORK,
            (All, &[PushesLost, LeaderKilled, LeaderStopped, LeaderCut, LeaderMoved]),
            (All, &[FollowerCut, MemberAway, MemberSlow, HistoryCompacted]),
        ]),
    ]
};

/// Returns a store whose holders only have faults.
const fn setup(name: &'static str, store: &'static str, what: &'static str, grants: u32) -> Setup {
    Setup { name, store, what, grants, rows: HOLDERS }
}

impl Setup {
    const fn with(self, rows: FaultRows) -> Self {
        Self { rows, ..self }
    }

    /// Starts the store so that these faults can be injected.
    ///
    /// # Errors
    /// [`Stop::missing`], if its programs are not installed.
    pub(crate) async fn open(
        &self,
        faults: &[Fault],
        connect: &Connect,
    ) -> Result<Box<dyn Topology>, Stop> {
        Ok(match self.name {
            "memory" => Box::new(Plain::memory()),
            "sqlite" => Box::new(Plain::sqlite()?),
            "redis-sentinel" => Box::new(Sentinel::start().await?),
            "redis-cluster" => Box::new(Cluster::start(faults).await?),
            "redis-quorum" => Box::new(Quorum::start().await?),
            "zk" => Box::new(Three::zookeeper(faults).await?),
            "etcd" => Box::new(Three::etcd().await?),
            _ => Box::new(Single::start(self.store, self.name == GUARDED, faults, connect).await?),
        })
    }
}

/// Returns the faults of these rows, each with the promise that the store keeps.
pub(crate) fn faults(rows: FaultRows) -> impl Iterator<Item = (Fault, Promise)> {
    rows.iter().flat_map(|(promise, faults)| faults.iter().map(|fault| (*fault, *promise)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_has_one_promise_in_a_store() {
        for setup in SETUPS {
            let mut seen: Vec<_> = faults(setup.rows).map(|(fault, _)| fault).collect();
            let count = seen.len();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), count, "{}", setup.name);
            let of_holders = Fault::HOLDERS.iter().all(|fault| seen.contains(fault));
            assert!(of_holders, "{}", setup.name);
        }
    }

    #[test]
    fn stores_that_forget_do_not_promise_all() {
        for (fault, promise) in SETUPS.iter().flat_map(|setup| faults(setup.rows)) {
            let forgets = matches!(fault, Fault::ServerEmptied | Fault::LaggingFailover)
                || Fault::CLOCK.contains(&fault);
            assert!(!forgets || promise != Promise::All, "{fault}");
        }
    }
}
