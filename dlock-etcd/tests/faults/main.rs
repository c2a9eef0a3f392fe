//! Histories under faults: processes that acquire and release locks at random while they, the
//! servers and the network between them are damaged. No two may ever rely on what excludes each
//! other, no token may be out of order, and in the end all locks are free and no key is left.
//!
//! `DLOCK_TEST_EFFORT=20` does damage for twenty times as long, `0.33` for a third.

mod ensemble;
mod sessions;
mod settings;
mod single;

use dlock_core::{DynBackend, Error};
use dlock_etcd::{Etcd, EtcdConfig};
use dlock_soak::{Scenario, run};

async fn connect(address: String) -> Result<DynBackend, Error> {
    Etcd::connect(EtcdConfig::from_url(&address)?).await
}

fn main() {
    run(
        "etcd",
        connect,
        vec![
            Scenario::new("holders::are_killed", single::holders_are_killed),
            Scenario::new("holders::are_stopped_past_their_sessions", single::holders_are_stopped),
            Scenario::new("holders::change_their_minds", single::holders_change_their_minds),
            Scenario::new("server::is_killed", single::is_killed),
            Scenario::new("server::is_paused", single::is_paused),
            Scenario::new("server::forgets_keys_which_is_noticed", single::forgets_keys),
            Scenario::new("network::connections_are_cut", single::connections_are_cut),
            Scenario::new("network::replies_are_lost", single::replies_are_lost),
            Scenario::new("ensemble::its_leader_is_killed", ensemble::its_leader_is_killed),
            Scenario::new("ensemble::its_leader_moves", ensemble::its_leader_moves),
            Scenario::new("ensemble::its_leader_stands_still", ensemble::its_leader_stands_still),
            Scenario::new("ensemble::its_leader_is_cut_off", ensemble::its_leader_is_cut_off),
            Scenario::new("ensemble::a_follower_is_cut_off", ensemble::a_follower_is_cut_off),
            Scenario::new("ensemble::a_member_is_slow", ensemble::a_member_is_slow),
            Scenario::new("ensemble::all_is_compacted", ensemble::all_is_compacted),
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
        ],
    )
}
