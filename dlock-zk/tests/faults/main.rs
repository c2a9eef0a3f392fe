//! Histories under faults: processes acquire and release locks at random while faults are injected
//! into them, the servers and the network between them. No two processes may hold locks that exclude
//! each other, no token may be out of order, and in the end all locks are free and no node is left.
//! The [table](dlock_soak::SETUPS) of the soak has the topologies and their faults; the other cases
//! are written by hand.
//!
//! `DLOCK_TEST_EFFORT=20` injects faults for twenty times as long, `0.33` for a third.

mod answers;
mod cleanup;
mod server;
mod sessions;
mod settings;

use dlock_core::{DynBackend, Error};
use dlock_soak::{Scenario, run, scenarios};
use dlock_zk::{ZkConfig, ZooKeeper};

async fn connect(address: String) -> Result<DynBackend, Error> {
    ZooKeeper::connect(ZkConfig::from_url(&address)?).await
}

fn main() {
    let mut all = scenarios("zk", connect);
    all.extend([
        Scenario::new("server::forgets_nodes_which_is_noticed", server::forgets_nodes),
        Scenario::new("server::forgets_everything_which_is_noticed", server::forgets),
        Scenario::new(
            "sessions::a_loss_behind_a_cut_follower_precedes_the_next_grant",
            sessions::behind_a_cut_follower,
        ),
        Scenario::new(
            "sessions::a_loss_behind_a_serving_follower_precedes_the_next_grant",
            sessions::behind_a_follower_that_keeps_serving,
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
            "sessions::an_operator_who_deletes_a_node_is_noticed",
            sessions::an_operator_who_deletes_a_node_is_noticed,
        ),
        Scenario::new(
            "sessions::waiters_go_on_in_the_next_one",
            sessions::waiters_go_on_in_the_next_one,
        ),
        Scenario::new("sessions::no_watch_stays", sessions::no_watch_stays),
        Scenario::new(
            "answers::a_release_whose_answer_is_lost_is_a_release",
            answers::a_release_whose_answer_is_lost_is_a_release,
        ),
        Scenario::new(
            "answers::a_lost_release_is_repeated_until_it_is_done",
            answers::a_lost_release_is_repeated_until_it_is_done,
        ),
        Scenario::new(
            "answers::an_acquire_whose_answer_is_lost_has_one_node",
            answers::an_acquire_whose_answer_is_lost_has_one_node,
        ),
        Scenario::new(
            "answers::an_acquire_lost_with_its_session_is_sent_again",
            answers::an_acquire_lost_with_its_session_is_sent_again,
        ),
        Scenario::new(
            "answers::an_acquire_that_takes_longer_than_its_lease_has_one_node",
            answers::an_acquire_that_takes_longer_than_its_lease_has_one_node,
        ),
        Scenario::new(
            "answers::a_try_whose_answer_is_lost_leaves_no_node",
            answers::a_try_whose_answer_is_lost_leaves_no_node,
        ),
        Scenario::new(
            "answers::a_claim_cancelled_before_the_answer_leaves_no_node",
            answers::a_claim_cancelled_before_the_answer_leaves_no_node,
        ),
        Scenario::new(
            "answers::an_acquire_that_comes_late_makes_no_second_node",
            answers::an_acquire_that_comes_late_makes_no_second_node,
        ),
        Scenario::new(
            "answers::late_acquires_in_a_returned_session_make_no_nodes",
            answers::late_acquires_in_a_returned_session_make_no_nodes,
        ),
    ]);
    run("zk", connect, all)
}
