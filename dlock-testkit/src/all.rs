//! The only list of cases. If a function in [`cases`](crate::cases) is missing here, the compiler
//! reports it as dead code.

use crate::{
    Case,
    case::Need::{self, Fifo, NoFifo, NoNotes, NoPermits, Notes, Permits, Processes, Tokens},
    cases,
};

macro_rules! list {
    ($($group:ident { $($name:ident $([$($need:ident),+])?,)* })*) => {
        &[$($(Case {
            group: stringify!($group),
            name: stringify!($name),
            needs: { const NEEDS: &[Need] = &[$($($need),+)?]; NEEDS },
            run: |cx| Box::pin(cases::$group::$name(cx)),
        },)*)*]
    };
}

/// All cases, by group. The brackets contain what a store must promise for a case.
pub const ALL: &[Case] = list! {
    exclusion {
        clients_never_hold_together,
        tasks_of_one_client_never_hold_together,
        tasks_without_handoff_never_hold_together,
        a_try_takes_a_free_lock,
        a_try_on_a_held_lock_is_none_and_no_error,
        a_released_lock_is_free_for_others,
        a_dropped_guard_frees_the_lock,
        a_waiter_gets_the_lock_when_it_is_released [Fifo],
        names_do_not_hold_each_other_up,
        a_wait_ends_with_a_timeout,
        a_busy_client_does_not_starve_another,
        with_runs_the_work_and_releases,
    }
    resend {
        an_acquire_sent_again_is_one_hold,
        an_acquire_sent_twice_at_once_is_one_hold,
        a_waiter_that_retries_keeps_its_position [Fifo],
        an_acquire_sent_again_renews_the_position [Fifo],
        resent_permits_are_counted_once [Permits],
        a_release_sent_again_finds_nothing,
        a_release_of_an_unknown_claim_changes_nothing [Fifo],
        a_lost_answer_to_a_lock_leaves_one_hold [Fifo],
        a_lost_answer_to_a_try_leaves_nothing,
        a_lost_answer_to_a_release_frees_the_lock,
        an_acquire_of_several_sent_again_is_one_hold_each,
    }
    lease {
        the_next_claim_is_granted_when_a_lease_ends,
        a_try_takes_a_lock_whose_lease_ended,
        a_held_lock_outlives_its_lease,
        many_locks_are_renewed_together,
        without_renewal_the_lock_ends_with_its_lease,
        renewal_ends_at_its_limit,
        the_lock_of_a_dead_client_expires,
        an_expired_claim_is_not_renewed,
        a_renewal_restarts_the_lease,
        a_late_request_does_not_shorten_the_lease,
        the_last_renewal_extends_the_lease,
        no_renewal_extends_the_lease_after_the_last [Fifo],
        renewals_are_answered_one_by_one,
        each_renewal_of_a_batch_has_its_own_lease,
        only_the_last_renewals_of_a_batch_are_last,
        a_renewal_of_a_waiter_is_not_kept [Fifo],
        a_renewal_of_an_earlier_grant_is_not_kept [Tokens, Fifo],
        all_renewals_of_a_large_batch_are_done,
        the_longest_lease_is_kept_whole,
        a_waiter_without_heartbeats_leaves_the_queue [Fifo],
        the_local_deadline_passes_before_the_next_grant,
        the_deadline_after_a_hand_off_ends_before_the_next_grant [Fifo],
        a_late_answer_does_not_move_the_deadline,
        a_late_answer_after_a_wait_does_not_move_the_deadline [Fifo],
        a_hold_acquired_again_outlives_its_deadline,
        a_renewed_lease_lasts_from_the_call,
        a_downgraded_lease_lasts_from_the_call,
        the_remaining_time_is_at_most_the_lease,
        the_remaining_time_shrinks,
        a_lock_delay_keeps_others_out_after_the_lease,
        a_release_ends_the_lock_delay,
    }
    fencing {
        token_grows_after_release [Tokens],
        token_grows_across_clients_and_kinds [Tokens],
        token_grows_after_expiry [Tokens],
        token_grows_across_local_hand_off [Tokens],
        token_grows_after_the_store_forgot_the_name [Tokens],
        token_grows_after_a_busy_try_and_a_cancel [Tokens, Fifo],
        blocks_of_tokens_do_not_meet [Tokens],
        an_expired_block_is_passed_over [Tokens],
        readers_have_a_token_each [Tokens, Fifo],
        permits_have_a_token_each [Tokens, Permits],
        a_fence_refuses_a_former_holder [Tokens],
    }
    raised_tokens {
        tokens_of_all_clients_rise_above_it [Tokens],
        tokens_behind_a_holder_rise_above_it [Tokens],
        a_released_block_does_not_lower_it [Tokens],
        tokens_in_reserve_are_not_used_below_it [Tokens],
        tokens_of_waiters_rise_above_it [Tokens, Fifo],
        tokens_beyond_2_to_the_53_grow_or_are_refused [Tokens],
        where_it_can_not_be_it_is_refused_and_leaves_nothing,
    }
    token_offset {
        an_offset_is_in_every_token_that_is_seen [Tokens],
        an_offset_is_in_no_token_that_the_store_is_asked_about [Tokens],
    }
    reentrant {
        entering_again_keeps_the_token_and_counts,
        a_hold_is_known_without_the_handle_it_came_from,
        the_last_guard_frees_the_lock_whichever_it_is,
        another_owner_waits,
        entering_again_does_not_wait_behind_others [Fifo],
        tasks_of_one_owner_enter_together,
        a_lost_hold_is_not_entered_again,
        a_cancelled_entry_does_not_count,
        owners_of_many_entries_never_mix,
    }
    fair {
        grants_follow_the_order_of_arrival [Fifo],
        a_try_does_not_overtake_a_waiter [Fifo],
        a_cancelled_claim_is_skipped [Fifo],
        a_dead_waiter_is_skipped_after_its_lease [Fifo],
        waiting_again_keeps_the_position [Fifo],
        a_fair_lock_is_never_handed_off_in_passing [Fifo],
        without_an_order_it_is_refused [NoFifo],
    }
    rwlock {
        readers_share,
        a_writer_is_alone,
        readers_and_writers_never_mix,
        waiting_readers_are_granted_together [Fifo],
        a_reader_does_not_pass_a_waiting_writer [Fifo],
        a_writer_is_not_starved_by_readers [Fifo],
        a_reader_is_not_starved_by_writers [Fifo],
        a_downgrade_grants_waiting_readers [Fifo],
        a_downgrade_grants_no_writer_in_between [Fifo],
        a_downgraded_lock_is_still_renewed,
        other_downgrades_are_refused,
        a_renewal_never_strengthens_a_claim,
        a_downgrade_in_a_batch_weakens_no_other_claim,
        a_renewal_of_a_reader_extends_no_other,
        readers_of_one_lock_are_renewed_in_one_batch,
        readers_are_granted_when_the_writer_before_them_cancels [Fifo],
        readers_are_granted_after_the_lease_of_a_dead_writer [Fifo],
    }
    semaphore {
        no_more_permits_are_held_than_there_are [Permits],
        a_try_without_free_permits_is_none [Permits],
        weights_count [Permits],
        a_returned_permit_wakes_a_waiter [Permits, Fifo],
        a_claim_for_many_is_not_starved [Permits, Fifo],
        light_claims_are_granted_when_a_heavy_one_cancels [Permits, Fifo],
        permits_of_dead_holders_come_back [Permits],
        a_renewal_of_permits_extends_no_other [Permits],
        holders_of_permits_are_renewed_in_one_batch [Permits],
        another_number_of_permits_is_refused_while_in_use [Permits],
        more_than_all_and_none_are_refused [Permits],
        without_permits_it_is_refused [NoPermits],
    }
    multi {
        it_takes_all_and_frees_all,
        a_try_takes_none_when_one_is_busy,
        it_waits_for_all [Fifo],
        opposite_orders_do_not_deadlock,
        overlapping_sets_do_not_deadlock [Fifo],
        repeated_names_are_one,
        it_has_a_token_for_each_name,
        a_wait_that_ends_leaves_none,
        a_wait_that_ends_releases_its_locks [Fifo],
        a_name_in_other_use_leaves_none [Permits],
        it_is_lost_when_one_is,
        it_reaches_over_two_stores,
        no_names_are_refused,
        several_acquires_are_answered_in_order [Fifo],
        each_of_several_acquires_has_its_own_lease,
    }
    cancel {
        a_mutex_at_every_poll,
        a_try_at_every_poll,
        a_mutex_without_handoff_at_every_poll,
        a_reader_and_a_writer_at_every_poll,
        an_owner_at_every_poll,
        a_multi_lock_at_every_poll,
        a_request_that_waits_for_its_answer_at_every_poll,
        permits_at_every_poll [Permits],
        a_cancelled_waiter_leaves_the_queue,
        a_grant_that_nobody_takes_passes_on [Fifo],
        a_thousand_at_random,
        a_release_goes_on_when_it_is_dropped,
        waiting_for_a_grant_may_be_dropped [Fifo],
        renewals_and_reads_may_be_dropped,
    }
    loss {
        a_revocation_is_reported_to_the_holder,
        a_release_says_that_the_lock_was_lost,
        a_loss_is_reported_while_renewals_hang,
        a_loss_is_reported_while_renewals_fail,
        a_renewal_that_fails_is_tried_again,
        work_is_dropped_when_the_lock_is_lost,
        work_under_a_held_lock_is_done,
        a_lost_guard_does_not_affect_the_next_holder,
        a_lost_lock_does_not_hold_its_neighbours_up,
        a_guard_may_be_dropped_outside_of_a_runtime,
        a_guard_works_in_a_runtime_of_one_thread,
        a_guard_may_outlive_its_runtime,
        a_panic_frees_the_lock,
    }
    names {
        hostile_names_are_all_different,
        long_names_are_not_cut,
        random_names_do_not_meet,
        names_that_can_not_be_are_refused,
    }
    list {
        names_with_the_prefix_are_listed,
        a_prefix_is_not_a_pattern,
        no_more_are_listed_than_asked_for,
        names_with_many_claims_are_listed_once [Fifo, Permits],
        a_name_that_only_waits_is_listed [Fifo],
        a_free_lock_is_not_listed,
        a_lock_handed_off_during_a_listing_is_listed [Fifo],
        the_prefix_of_a_client_is_removed,
        where_it_can_not_be_it_is_refused,
    }
    notes {
        a_holder_has_its_note_until_it_goes [Notes],
        a_waiter_has_its_note_and_keeps_it [Notes, Fifo],
        claims_that_share_have_a_note_each [Notes, Fifo],
        permits_have_a_note_each [Notes, Permits],
        no_renewal_changes_a_note [Notes],
        a_note_stays_when_tokens_are_raised [Notes],
        every_note_is_stored_unchanged [Notes],
        all_locks_of_a_client_have_its_note [Notes],
        a_claim_without_a_note_shows_none,
        where_it_can_not_be_it_is_left_out [NoNotes],
        a_claim_keeps_its_own_note [Notes],
    }
    errors {
        leases_out_of_range_are_refused,
        renewal_for_less_than_the_lease_is_refused,
        a_wait_of_zero_is_one_attempt,
        an_endless_wait_does_not_overflow,
        without_a_runtime_it_is_an_error,
        with_its_runtime_gone_it_is_an_error,
        waits_end_with_an_error_when_their_runtime_ends,
        every_request_is_refused_after_a_shutdown,
        a_shutdown_waits_for_guards,
        an_error_names_lock_store_and_remedy,
        a_store_out_of_reach_is_unavailable,
        a_store_that_comes_back_in_time_is_waited_for,
        a_missing_guarantee_is_refused_when_required,
    }
    claims {
        a_free_lock_is_granted_at_once,
        a_held_lock_is_queued_for_in_order [Fifo],
        busy_leaves_no_trace,
        granted_answers_for_a_holder [Fifo],
        a_waiter_that_lost_its_position_gets_an_error [Fifo],
        a_release_cancels_a_waiter [Fifo],
        a_release_grants_one_claim [Fifo],
        a_cancellation_grants_claims_that_now_fit [Fifo],
        a_downgrade_grants_claims_that_now_fit [Fifo],
        an_absent_claim_is_not_renewed,
        inspect_shows_the_current_state [Fifo],
        inspect_changes_nothing,
        a_claim_grows_older_and_no_renewal_makes_it_younger,
        a_claim_is_no_older_than_its_grant,
        the_last_token_outlives_its_claim,
        all_clients_name_the_same_store,
        a_waiter_learns_that_a_lease_ended,
        a_waiter_keeps_its_position_for_as_long_as_it_waits [Fifo],
        no_wake_up_is_lost [Fifo],
    }
    model {
        random_verbs_do_what_the_model_does,
        random_guards_do_what_the_model_does,
    }
    process {
        a_process_excludes_another [Processes, Fifo],
        processes_hand_off_to_each_other [Processes, Fifo],
        a_killed_process_loses_its_lock_after_its_lease [Processes],
        a_killed_waiter_is_passed_over [Processes, Fifo],
        a_stopped_process_is_fenced_off [Processes, Tokens],
        a_counter_of_many_processes_is_exact [Processes],
        a_busy_process_does_not_starve_another [Processes],
        readers_of_two_processes_share [Processes, Tokens],
        a_process_renews_what_it_holds [Processes],
    }
};

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique() {
        let names: BTreeSet<String> = ALL.iter().map(Case::name).collect();
        assert_eq!(names.len(), ALL.len());
    }
}
