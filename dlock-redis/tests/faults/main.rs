//! Histories under faults: processes that take and let go of locks at random while they, the
//! servers and the network between them are harmed. No two may ever believe to hold what excludes
//! each other, no token may be out of order, and in the end all locks are free.
//!
//! `DLOCK_TEST_EFFORT=20` does harm for twenty times as long, `0.33` for a third.

mod answers;
mod claims;
mod groups;
mod guard;
mod holders;
mod left;
mod network;
mod server;
mod storm;
mod together;

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
            Scenario::new("holders::change_their_minds", holders::change_their_minds),
            Scenario::new("server::is_killed", server::is_killed),
            Scenario::new("server::is_paused", server::is_paused),
            Scenario::new("server::is_emptied_which_is_noticed", server::is_emptied),
            Scenario::new("server::forgets_everything", server::forgets),
            Scenario::new("server::forgets_everything_unguarded", server::forgets_unguarded),
            Scenario::new("server::forgets_its_scripts", server::forgets_its_scripts),
            Scenario::new("network::connections_are_cut", network::connections_are_cut),
            Scenario::new("network::replies_are_lost", network::replies_are_lost),
            Scenario::new("sentinel::fails_over", groups::one_sentinel_fails_over),
            Scenario::new("sentinel::fails_over_as_it_likes", groups::any_sentinel_fails_over),
            Scenario::new("cluster::a_replica_takes_over", groups::a_replica_takes_over),
            Scenario::new("cluster::slots_move", groups::slots_move),
            Scenario::new("quorum::two_of_five_are_away", groups::two_of_five_are_away),
            Scenario::new("all_at_once", together::all_at_once),
            Scenario::new(
                "guard::holds_for_attempts_that_wait_for_the_connection",
                guard::holds_for_attempts_that_wait_for_the_connection,
            ),
            Scenario::new(
                "guard::holds_for_votes_that_are_retried",
                guard::holds_for_votes_that_are_retried,
            ),
            Scenario::new(
                "answers::a_release_whose_answer_is_lost_is_a_release",
                answers::a_release_whose_answer_is_lost_is_a_release,
            ),
            Scenario::new(
                "answers::a_release_that_got_lost_is_done_in_the_end",
                answers::a_release_that_got_lost_is_done_in_the_end,
            ),
            Scenario::new(
                "answers::stay_with_their_questions",
                answers::answers_stay_with_their_questions,
            ),
            Scenario::new(
                "claims::a_waiter_is_not_renewed_as_a_holder",
                claims::a_waiter_is_not_renewed_as_a_holder,
            ),
            Scenario::new(
                "claims::a_multi_lock_waits_for_as_long_as_it_takes",
                claims::a_multi_lock_waits_for_as_long_as_it_takes,
            ),
        ],
    )
}
