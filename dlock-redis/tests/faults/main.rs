//! Histories under faults: processes acquire and release locks at random, while faults are injected
//! into them, the servers and the network between them. No two processes may hold locks that exclude
//! each other, no token may be out of order, and in the end all locks are free.
//!
//! `DLOCK_TEST_EFFORT=20` injects faults for twenty times as long, `0.33` for a third.

mod answers;
mod claims;
mod cleanup;
mod combined;
mod groups;
mod holders;
mod network;
mod restart_guard;
mod server;
mod storm;

use dlock_core::{DynBackend, Error};
use dlock_redis::{Redis, RedisConfig};
use dlock_soak::{Scenario, run};

async fn connect(address: String) -> Result<DynBackend, Error> {
    Redis::connect(RedisConfig::from_url(&address)?).await
}

fn main() {
    run(
        "redis",
        connect,
        vec![
            Scenario::new("holders::are_killed", holders::are_killed),
            Scenario::new("holders::are_stopped_past_their_leases", holders::are_stopped),
            Scenario::new("holders::cancel_at_random", holders::cancel_at_random),
            Scenario::new("server::is_killed", server::is_killed),
            Scenario::new("server::is_paused", server::is_paused),
            Scenario::new("server::is_emptied_and_the_loss_is_reported", server::is_emptied),
            Scenario::new("server::loses_its_data", server::loses_data),
            Scenario::new("server::loses_its_data_unguarded", server::loses_data_unguarded),
            Scenario::new("server::loses_its_scripts", server::loses_its_scripts),
            Scenario::new("network::connections_are_cut", network::connections_are_cut),
            Scenario::new("network::replies_are_lost", network::replies_are_lost),
            Scenario::new("sentinel::fails_over", groups::one_sentinel_fails_over),
            Scenario::new("sentinel::fails_over_to_any_replica", groups::any_replica_takes_over),
            Scenario::new("cluster::a_replica_takes_over", groups::a_replica_takes_over),
            Scenario::new("cluster::slots_move", groups::slots_move),
            Scenario::new(
                "quorum::two_of_five_are_unreachable",
                groups::two_of_five_are_unreachable,
            ),
            Scenario::new("all_faults_at_once", combined::all_faults_at_once),
            Scenario::new(
                "restart_guard::holds_for_attempts_that_wait_for_the_connection",
                restart_guard::holds_for_attempts_that_wait_for_the_connection,
            ),
            Scenario::new(
                "restart_guard::holds_for_votes_that_are_retried",
                restart_guard::holds_for_votes_that_are_retried,
            ),
            Scenario::new(
                "answers::a_release_with_a_lost_answer_is_successful",
                answers::a_release_with_a_lost_answer_is_successful,
            ),
            Scenario::new(
                "answers::a_lost_release_is_retried_until_it_succeeds",
                answers::a_lost_release_is_retried_until_it_succeeds,
            ),
            Scenario::new("answers::match_their_requests", answers::answers_match_their_requests),
            Scenario::new(
                "claims::a_waiter_is_not_renewed_as_a_holder",
                claims::a_waiter_is_not_renewed_as_a_holder,
            ),
            Scenario::new(
                "claims::a_multi_lock_waits_until_all_locks_are_free",
                claims::a_multi_lock_waits_until_all_locks_are_free,
            ),
        ],
    )
}
