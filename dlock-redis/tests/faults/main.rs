//! Histories under faults: processes acquire and release locks at random, while faults are injected
//! into them, the servers and the network between them. No two processes may hold locks that exclude
//! each other, no token may be out of order, and in the end all locks are free. The
//! [table](dlock_soak::SETUPS) of the soak has the topologies and their faults; the other cases are
//! written by hand.
//!
//! `DLOCK_TEST_EFFORT=20` injects faults for twenty times as long, `0.33` for a third.

mod answers;
mod claims;
mod restart_guard;
mod servers;

use dlock_core::{DynBackend, Error};
use dlock_redis::{Redis, RedisConfig};
use dlock_soak::{Scenario, run, scenarios};

async fn connect(address: String) -> Result<DynBackend, Error> {
    Redis::connect(RedisConfig::from_url(&address)?).await
}

fn main() {
    let mut all = scenarios("redis", connect);
    all.extend([
        Scenario::new("servers::fail_over_to_any_replica", servers::any_replica_takes_over),
        Scenario::new(
            "servers::an_emptied_server_is_noticed",
            servers::an_emptied_server_is_noticed,
        ),
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
    ]);
    run("redis", connect, all)
}
