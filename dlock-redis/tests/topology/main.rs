//! Redis as it is run: Sentinel, Cluster, replicas and quorums of real servers that fail over, move
//! slots, hang, die and come back, under clients that hold locks and wait for them.
//!
//! Most of the time they wait for servers to notice that others are gone, so several run side by
//! side on each processor.

#![expect(clippy::disallowed_methods, reason = "tests run clients side by side")]
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod close;
mod cluster;
mod durable;
mod fall;
mod guard;
mod health;
mod help;
mod moves;
mod multi;
mod nodes;
mod push;
mod quorum;
mod resolve;
mod sentinel;
mod votes;

use libtest_mimic::{Arguments, Trial};

/// How many tests run at once: each has three to nine servers of its own.
const THREADS: usize = 4;

/// The only list of the tests. A function that is missing here is dead code, which the compiler
/// tells.
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
            a_client_that_looks_for_its_server_stops_when_it_is_dropped,
        }
        cluster {
            every_kind_of_lock_works_in_many_buckets,
            a_hand_off_is_pushed_on_one_channel_per_bucket_in_use,
            a_script_that_a_node_forgot_is_sent_to_that_node_only,
            a_cluster_is_found_by_any_node_that_runs,
            a_mode_of_its_own_does_not_meet_another,
        }
        durable {
            a_grant_that_no_replica_knows_of_is_refused_and_taken_back,
            a_waiters_grant_reaches_replicas_and_a_new_master,
            replicas_of_a_cluster_are_waited_for_in_every_bucket,
        }
        fall {
            a_failover_that_was_asked_for_is_followed,
            a_failover_from_a_dead_master_is_followed,
            a_failover_from_a_master_that_hangs_is_followed,
            unserved_slots_are_unavailable_and_the_others_go_on,
            locks_at_other_masters_outlive_a_dead_one,
        }
        guard {
            a_master_that_started_a_short_while_ago_does_not_vote,
            a_server_that_restarts_while_it_is_asked_grants_nothing,
            a_master_that_restarts_while_it_is_asked_does_not_vote,
        }
        health {
            a_server_that_never_answers_is_an_error_in_bounded_time,
            a_connection_that_went_silent_is_replaced,
            a_renewal_without_an_answer_goes_over_another_connection,
            an_unrenewed_lock_is_lost_before_the_next_grant,
        }
        moves {
            answers_belong_to_their_commands_while_slots_move,
            a_lock_that_is_held_and_waited_for_moves_with_its_slot,
            verbs_on_a_half_moved_slot_are_bounded_and_lose_nothing,
        }
        multi {
            clients_with_and_without_durability_do_not_deadlock,
            multi_locks_over_shards_do_not_deadlock,
            a_durable_multi_lock_without_replicas_is_refused,
        }
        push {
            a_hand_off_costs_two_scripts_and_one_message,
            a_grant_during_a_cut_is_noticed_after_the_reconnect,
            a_waiter_is_granted_by_a_restarted_server,
        }
        quorum {
            two_of_five_masters_may_die_and_three_may_not,
            a_hanging_master_does_not_delay_a_try,
            a_waiter_is_granted_soon_after_a_release_or_an_expiry,
            masters_that_forgot_the_scripts_are_sent_them,
            operations_unsupported_by_a_quorum_are_refused,
        }
        resolve {
            an_unknown_master_or_dead_sentinels_give_a_remedy,
            a_sentinel_that_is_behind_sends_nobody_to_the_old_master,
            a_demoted_master_is_an_error_until_it_is_master_again,
            a_failover_under_load_is_not_noticed,
        }
        sentinel {
            locks_and_waiters_go_on_after_a_failover_that_was_asked_for,
            locks_and_waiters_outlive_a_killed_and_restarted_master,
            locks_and_waiters_go_on_when_the_master_hangs_and_comes_back,
        }
        votes {
            tokens_rise_from_one_majority_to_the_next,
            an_attempt_that_finds_no_majority_leaves_nothing,
            a_claim_does_not_stay_on_a_master_that_was_away,
            a_claim_is_forgotten_when_a_majority_has_lost_its_data,
        }
    };
    libtest_mimic::run(&arguments, trials).exit()
}
