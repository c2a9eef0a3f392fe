//! Histories under faults: processes acquire and release locks at random while faults are injected
//! into them, the servers and the network between them. No two processes may hold locks that exclude
//! each other, no token may be out of order, and in the end all locks are free and no key is left.
//! The [table](dlock_soak::SETUPS) of the soak has the topologies and their faults; the other cases
//! are written by hand.
//!
//! `DLOCK_TEST_EFFORT=20` injects faults for twenty times as long, `0.33` for a third.

mod server;
mod sessions;
mod settings;

use dlock_core::{DynBackend, Error};
use dlock_etcd::{Etcd, EtcdConfig};
use dlock_soak::{Scenario, run, scenarios};

async fn connect(address: String) -> Result<DynBackend, Error> {
    Etcd::connect(EtcdConfig::from_url(&address)?).await
}

fn main() {
    let mut all = scenarios("etcd", connect);
    all.extend([
        Scenario::new("server::forgets_keys_which_is_noticed", server::forgets_keys),
        Scenario::new(
            "sessions::a_loss_behind_a_cut_follower_precedes_the_next_grant",
            sessions::behind_a_cut_follower,
        ),
        Scenario::new(
            "sessions::a_loss_behind_a_cut_leader_precedes_the_next_grant",
            sessions::behind_a_cut_leader,
        ),
        Scenario::new(
            "sessions::a_loss_of_a_partitioned_client_precedes_the_next_grant",
            sessions::behind_a_cut_connection,
        ),
        Scenario::new(
            "sessions::leases_that_an_old_leader_ends_are_not_in_use",
            sessions::before_an_old_leader,
        ),
    ]);
    run("etcd", connect, all)
}
