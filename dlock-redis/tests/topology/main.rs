//! Sentinel, Cluster, replicas and quorums of real servers that fail over, move slots, hang, die and come
//! back, while clients hold locks and wait for them.
//!
//! The tests mostly wait for servers to detect failures, so several run concurrently on each processor.

#![expect(clippy::disallowed_methods, reason = "tests run clients side by side")]
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod close;
mod cluster;
mod data_loss;
mod failover;
mod health;
mod multi;
mod nodes;
mod push;
mod quorum;
mod sentinel;
mod support;

use libtest_mimic::{Arguments, Trial};

/// How many tests run at once: each has three to nine servers.
const THREADS: usize = 4;

/// The only list of the tests. The compiler warns about a function that is missing here.
macro_rules! trials {
    ($($module:ident { $($test:ident,)* })*) => {
        vec![$($(Trial::test(concat!(stringify!($module), "::", stringify!($test)), || {
            $module::$test();
            Ok(())
        }),)*)*]
    };
}

fn main() {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);
    let trials = trials! {
        close {
            a_client_that_is_dropped_closes_all_connections,
            a_connecting_client_stops_when_it_is_dropped,
        }
        cluster {
            every_kind_of_lock_works_in_many_buckets,
            a_hand_off_is_pushed_on_one_channel_per_bucket_in_use,
            a_script_missing_on_a_node_is_sent_to_that_node_only,
            a_cluster_is_found_by_any_node_that_runs,
            claims_with_different_capacities_conflict,
            answers_belong_to_their_commands_while_slots_move,
            a_held_lock_and_its_waiter_move_with_their_slot,
            verbs_on_a_moving_slot_are_bounded_and_lose_nothing,
        }
        data_loss {
            a_grant_without_replicas_is_refused_and_released,
            a_waiters_grant_reaches_replicas_and_a_new_master,
            a_renewal_without_replicas_does_not_count,
            durability_applies_to_every_bucket_of_a_cluster,
            a_master_does_not_vote_soon_after_its_start,
            a_server_restarted_during_a_request_grants_nothing,
            a_master_restarted_during_a_request_does_not_vote,
        }
        failover {
            a_requested_failover_is_followed,
            a_failover_from_a_dead_master_is_followed,
            a_failover_from_a_hanging_master_is_followed,
            unserved_slots_do_not_affect_other_slots,
            locks_on_other_masters_survive_a_dead_one,
        }
        health {
            a_silent_server_is_an_error_in_bounded_time,
            a_silent_connection_is_replaced,
            an_unanswered_renewal_is_retried_on_another_connection,
            an_unrenewed_lock_is_lost_before_the_next_grant,
        }
        multi {
            clients_with_and_without_durability_do_not_deadlock,
            multi_locks_over_shards_do_not_deadlock,
            a_durable_multi_lock_without_replicas_is_refused,
        }
        push {
            a_hand_off_costs_two_scripts_and_one_message,
            a_grant_during_a_cut_is_noticed_after_the_reconnect,
            a_claim_from_an_outage_is_notified_of_its_grant,
            a_waiter_is_granted_by_a_restarted_server,
        }
        quorum {
            a_quorum_of_five_survives_two_dead_masters_only,
            a_hanging_master_does_not_delay_a_try,
            a_waiter_gets_the_lock_after_a_release_or_an_expiry,
            masters_without_the_scripts_get_them_again,
            operations_unsupported_by_a_quorum_are_refused,
            tokens_grow_from_one_majority_to_the_next,
            an_attempt_without_a_majority_leaves_nothing,
            a_claim_does_not_stay_on_a_master_that_was_unreachable,
            a_claim_is_forgotten_when_a_majority_has_lost_its_data,
        }
        sentinel {
            locks_and_waiters_survive_a_requested_failover,
            locks_and_waiters_survive_a_killed_master,
            locks_and_waiters_survive_a_hanging_master,
            an_unknown_master_or_dead_sentinels_give_a_remedy,
            an_outdated_sentinel_does_not_lead_to_the_old_master,
            a_demoted_master_is_an_error_until_it_is_master_again,
            a_failover_under_load_causes_no_errors,
            a_master_without_replicas_or_a_lag_limit_is_reported,
        }
    };
    libtest_mimic::run(&arguments, trials).exit()
}
