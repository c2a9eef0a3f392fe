//! Histories under faults: processes that acquire and release locks at random while they, the
//! servers and the network between them are damaged. No two may ever rely on what excludes each
//! other, no token may be out of order, and in the end all locks are free and no node is left.
//!
//! `DLOCK_TEST_EFFORT=20` does damage for twenty times as long, `0.33` for a third.

mod answers;
mod cleanup;
mod ensemble;
mod holders;
mod mixed;
mod network;
mod server;
mod sessions;
mod settings;

use dlock_core::{DynBackend, Error};
use dlock_soak::{Scenario, run};
use dlock_zk::{ZkConfig, ZooKeeper};

async fn connect(address: String) -> Result<DynBackend, Error> {
    ZooKeeper::connect(ZkConfig::from_url(&address)?).await
}

fn main() {
    run(
        "zk",
        connect,
        vec![
            Scenario::new("holders::are_killed", holders::are_killed),
            Scenario::new("holders::are_stopped_past_their_sessions", holders::are_stopped),
            Scenario::new("holders::change_their_minds", holders::change_their_minds),
            Scenario::new("server::is_killed", server::is_killed),
            Scenario::new("server::is_paused", server::is_paused),
            Scenario::new("server::forgets_nodes_which_is_noticed", server::forgets_nodes),
            Scenario::new("server::forgets_everything_which_is_noticed", server::forgets),
            Scenario::new("network::connections_are_cut", network::connections_are_cut),
            Scenario::new("network::replies_are_lost", network::replies_are_lost),
            Scenario::new("all_at_once", mixed::all_at_once),
            Scenario::new("ensemble::its_leader_is_killed", ensemble::its_leader_is_killed),
            Scenario::new("ensemble::a_follower_is_cut_off", ensemble::a_follower_is_cut_off),
            Scenario::new("ensemble::its_leader_is_cut_off", ensemble::its_leader_is_cut_off),
            Scenario::new("ensemble::its_leader_stands_still", ensemble::its_leader_stands_still),
            Scenario::new("ensemble::all_at_once", mixed::all_at_once_on_three),
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
        ],
    )
}
