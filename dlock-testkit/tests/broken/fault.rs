//! The fault of each broken store, and the cases that have to find it.

/// The fault of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// No fault.
    None,
    /// A release by any client ends the hold of the current holder.
    ReleasesWithoutOwnerCheck,
    /// A waiter that cancels ends the hold of the holder.
    CancelReleasesTheHolder,
    /// A release by a client that has lost the lock ends the hold of the next holder.
    ReleasesTheNextHolder,
    /// Tokens start from 1 again when the name has no claims.
    ResetsTokens,
    /// Tokens come from a counter alone, which the store may lose.
    CountsTokens,
    /// Tokens are random numbers.
    RandomTokens,
    /// A grant has the token of the grant before it.
    RepeatsTokens,
    /// Readers that are granted together have the same token.
    OneTokenForAllReaders,
    /// A block of tokens counts as one token.
    BlocksOverlap,
    /// Of the block of a lease that has ended, only the first token counts as used.
    ReusesExpiredBlocks,
    /// A repeated acquire of a holder gets a new token.
    NewTokenForAResend,
    /// A waiter misses the notifications that are sent while it does not listen.
    LosesWakeUps,
    /// A waiter is notified of releases, but not of leases that end.
    NoWakeUpAtLeaseEnd,
    /// A waiter is never notified, and reads the store once.
    NeverNotifies,
    /// A waiter that is woken takes the lock as granted, even if it is not in the queue.
    TrustsTheWakeUp,
    /// A writer is granted although readers hold the lock.
    WriterBesideReaders,
    /// Two exclusive claims are granted together.
    TwoHolders,
    /// Claims of the client that holds the lock are granted as well, before those of others.
    ReentersByClient,
    /// Readers are granted before writers that have waited longer.
    ReadersPassWriters,
    /// A repeated acquire is a second claim.
    CountsAResendTwice,
    /// A repeated acquire of a waiter goes to the end of the queue.
    ResendLosesThePosition,
    /// A waiter goes to the end of the queue when it begins to wait for the grant.
    WaitingLosesThePosition,
    /// A waiter whose claim was removed joins the queue again, without an error.
    RejoinsSilently,
    /// Waiting does not renew the position in the queue.
    ExpiresLiveWaiters,
    /// A renewal takes a lock whose lease has ended.
    RenewsExpiredClaims,
    /// A renewal is always confirmed.
    RenewalAlwaysConfirmed,
    /// A renewal by a client that has lost the lock renews the lease of the next holder.
    RenewsTheNextHolder,
    /// A renewal does not change the lease.
    RenewalDoesNothing,
    /// The renewal that arrives last sets the lease, even if it shortens it.
    LastRenewalToArriveWins,
    /// A repeated acquire sets the lease, even if it shortens it.
    ResendShortensTheLease,
    /// A late renewal extends a lease that the last renewal has set.
    RenewsAfterTheLastRenewal,
    /// Of several renewals, only the first one is applied, and all are confirmed.
    RenewsTheFirstOnly,
    /// Of many renewals, only the first ones are applied, and all are confirmed.
    RenewsTheFirst64,
    /// A renewal of a claim that waits is confirmed.
    RenewsWaiters,
    /// Of several renewals, those of claims that wait are confirmed.
    RenewsWaitersInBatches,
    /// A renewal is confirmed although the claim has another grant by now.
    RenewsAnyGrant,
    /// Of several renewals, each is confirmed although its claim has another grant by now.
    RenewsAnyGrantInBatches,
    /// Of several renewals, each extends its lease by that of the first one.
    BatchHasTheFirstLease,
    /// Of several renewals, each extends its lease by the shortest of all.
    BatchHasTheShortestLease,
    /// Of several renewals, each has the mode of the first one.
    BatchHasTheFirstMode,
    /// If one of several renewals is the last one of its claim, each of them is.
    BatchIsLastAsAWhole,
    /// Of several renewals of one lock, only the last one is applied, and all are confirmed.
    BatchRenewsOneOfALock,
    /// Of several renewals of one lock, each has the answer to the last one.
    BatchAnswersByLock,
    /// The readers of a lock have one lease, which each renewal extends.
    ReadersShareALease,
    /// The holders of permits have one lease, which each renewal extends.
    PermitsShareALease,
    /// The lengths of leases are 32-bit numbers of microseconds.
    LongLeasesWrap,
    /// Leases do not end.
    NeverExpiresLeases,
    /// Waiters without heartbeats stay in the queue.
    KeepsDeadWaiters,
    /// The lease of a grant begins when the claim joined the queue.
    LeaseFromTheQueue,
    /// The client counts the lease from the arrival of the reply.
    LeaseFromTheReply,
    /// The client counts the lease from the time at which it reads the answer.
    LeaseFromTheAnswer,
    /// A waiter counts the lease from the time at which it learns of the grant.
    LeaseFromTheWakeUp,
    /// The store counts a renewed lease from some time before the call.
    RenewalFromTheTransaction,
    /// A renewal in a stronger mode makes the claim stronger.
    RenewalStrengthens,
    /// A renewal that is dropped blocks the next ones.
    DroppedRenewalBlocks,
    /// An acquire that was sent can be given up.
    GivesUpSentAcquires,
    /// A repeated acquire of a waiter does not extend its lease.
    ResendKeepsTheLease,
    /// Each client has another name for the store.
    StoreNameByClient,
    /// Each client sees its own table, as with temporary tables.
    TableByClient,
    /// The last token of a free lock is unknown.
    ForgetsTheLastToken,
    /// The lease begins later, by the margin that the core subtracts from its end.
    IgnoresTheMargin,
    /// A repeated acquire of a held claim reports a lease that begins now, and does not extend it.
    AdoptsTheOldClaim,
    /// The store counts the lease from the start of the transaction, some time before the grant.
    LeaseFromTheTransaction,
    /// A release frees the lock, but does not grant it to the next claim.
    ReleaseGrantsNobody,
    /// A waiter that cancels stays in the queue.
    CancelledWaiterStays,
    /// A cancelled waiter leaves, but the claims behind it are not granted.
    CancelGrantsNobody,
    /// A try that finds the lock busy stays in the queue.
    BusyTryStays,
    /// A downgrade is a release and a new claim, so a writer is granted in between.
    DowngradeGrantsAWriter,
    /// A downgrade does not change the mode.
    DowngradeIgnored,
    /// A downgrade does not grant the lock to waiting readers.
    DowngradeGrantsNobody,
    /// A downgrade changes the mode, but does not extend the lease.
    DowngradeKeepsTheLease,
    /// Each claim counts as one permit.
    WeightsIgnored,
    /// Claims for few permits are granted before an earlier claim for many.
    LightPassHeavy,
    /// Semaphores of different capacities share a name.
    AnyCapacity,
    /// If one of several locks is busy, the free ones stay acquired.
    KeepsPartOfASet,
    /// Of several acquires, each has the lease of the first one.
    SetHasTheFirstLease,
    /// Of several acquires, each has the shortest lease of all.
    SetHasTheShortestLease,
    /// Some clients acquire several locks at once, and others one by one.
    SomeClientsAcquireOneByOne,
    /// Names are folded to lower case.
    FoldsNames,
    /// Names lose spaces at the end.
    TrimsNames,
    /// Names are cut at 255 characters.
    CutsNames,
    /// A release always reports that the lock was held.
    NeverAlreadyLost,
    /// Inspect shows holders whose lease has ended.
    InspectShowsExpired,
    /// Inspect shows the whole lease of each claim.
    InspectShowsTheWholeLease,
    /// Inspect shows each claim as exclusive.
    InspectShowsExclusiveOnly,
    /// The last waiter is granted first.
    LastComeFirstServed,
    /// Raising the tokens changes nothing.
    IgnoresRaisedTokens,
    /// The release of a block lowers the last token below a raised one.
    ReleasedBlockLowersTokens,
    /// Tokens are doubles, which are exact up to 2^53.
    TokensAreDoubles,
    /// A record of each name remains.
    LeavesRecords,
    /// The prefix of names to list is used as a pattern.
    ListsByPattern,
    /// The prefix of names to list ignores case.
    ListsFolded,
    /// A name that equals the prefix is not listed.
    ListsLongerNamesOnly,
    /// Names that are free are listed.
    ListsFreeNames,
    /// Names that have only waiters are not listed.
    ListsHoldersOnly,
    /// Names with readers or permits are not listed.
    ListsWritersOnly,
    /// A name is listed once for each claim.
    ListsClaims,
    /// More names are listed than the limit permits.
    ListsAll,
    /// The age of a claim is that of its lease.
    AgeOfTheLease,
    /// The age of a claim is that of the lock.
    AgeOfTheLock,
    /// A renewed claim has no note.
    RenewalForgetsTheNote,
    /// All claims have the note of the first one.
    OneNoteForAll,
    /// Waiters have no note.
    WaitersWithoutNotes,
    /// Notes are converted to ASCII.
    FoldsNotes,
    /// A wait panics if the runtime of its client ends.
    PanicsWithoutItsRuntime,
}

impl Fault {
    /// The faults that the cases find, each with the cases that have to find it.
    #[rustfmt::skip]
    pub(crate) const ALL: &[(Self, &[&str])] = {
        use Fault::*;
        &[
            (ReleasesWithoutOwnerCheck, &["resend::a_release_of_an_unknown_claim_changes_nothing"]),
            (CancelReleasesTheHolder, &["claims::a_release_cancels_a_waiter"]),
            (ReleasesTheNextHolder, &["loss::a_lost_guard_does_not_affect_the_next_holder"]),
            (ResetsTokens, &["fencing::token_grows_after_release"]),
            (CountsTokens, &["fencing::token_grows_after_the_store_forgot_the_name"]),
            (RandomTokens, &["fencing::token_grows_across_clients_and_kinds"]),
            (RepeatsTokens, &["fencing::a_fence_refuses_a_former_holder"]),
            (OneTokenForAllReaders, &["fencing::readers_have_a_token_each"]),
            (BlocksOverlap, &["fencing::blocks_of_tokens_do_not_meet"]),
            (ReusesExpiredBlocks, &["fencing::an_expired_block_is_passed_over"]),
            (NewTokenForAResend, &["resend::an_acquire_sent_again_is_one_hold"]),
            (LosesWakeUps, &["claims::granted_answers_for_a_holder"]),
            (NoWakeUpAtLeaseEnd, &["claims::a_waiter_learns_that_a_lease_ended"]),
            (NeverNotifies, &["claims::no_wake_up_is_lost"]),
            (TrustsTheWakeUp, &["claims::a_waiter_that_lost_its_position_gets_an_error"]),
            (WriterBesideReaders, &["rwlock::a_writer_is_alone"]),
            (TwoHolders, &["exclusion::clients_never_hold_together"]),
            (ReentersByClient, &["exclusion::tasks_without_handoff_never_hold_together"]),
            (ReadersPassWriters, &["rwlock::a_reader_does_not_pass_a_waiting_writer"]),
            (CountsAResendTwice, &["resend::resent_permits_are_counted_once"]),
            (ResendLosesThePosition, &["resend::a_waiter_that_retries_keeps_its_position"]),
            (WaitingLosesThePosition, &["fair::waiting_again_keeps_the_position"]),
            (RejoinsSilently, &["claims::a_waiter_that_lost_its_position_gets_an_error"]),
            (ExpiresLiveWaiters, &["claims::a_waiter_keeps_its_position_for_as_long_as_it_waits"]),
            (RenewsExpiredClaims, &["lease::an_expired_claim_is_not_renewed"]),
            (RenewalAlwaysConfirmed, &["loss::a_revocation_is_reported_to_the_holder"]),
            (RenewsTheNextHolder, &["lease::an_expired_claim_is_not_renewed"]),
            (RenewalDoesNothing, &["lease::a_renewal_restarts_the_lease"]),
            (LastRenewalToArriveWins, &["lease::a_late_request_does_not_shorten_the_lease"]),
            (ResendShortensTheLease, &["lease::a_late_request_does_not_shorten_the_lease"]),
            (RenewsAfterTheLastRenewal, &["lease::no_renewal_extends_the_lease_after_the_last"]),
            (RenewsTheFirstOnly, &["lease::renewals_are_answered_one_by_one"]),
            (RenewsTheFirst64, &["lease::all_renewals_of_a_large_batch_are_done"]),
            (RenewsWaiters, &["lease::a_renewal_of_a_waiter_is_not_kept"]),
            (RenewsWaitersInBatches, &["lease::a_renewal_of_a_waiter_is_not_kept"]),
            (RenewsAnyGrant, &["lease::a_renewal_of_an_earlier_grant_is_not_kept"]),
            (RenewsAnyGrantInBatches, &["lease::a_renewal_of_an_earlier_grant_is_not_kept"]),
            (BatchHasTheFirstLease, &["lease::each_renewal_of_a_batch_has_its_own_lease"]),
            (BatchHasTheShortestLease, &["lease::each_renewal_of_a_batch_has_its_own_lease"]),
            (BatchHasTheFirstMode, &["rwlock::a_downgrade_in_a_batch_weakens_no_other_claim"]),
            (BatchIsLastAsAWhole, &["lease::only_the_last_renewals_of_a_batch_are_last"]),
            (BatchRenewsOneOfALock, &["rwlock::readers_of_one_lock_are_renewed_in_one_batch"]),
            (BatchAnswersByLock, &["semaphore::holders_of_permits_are_renewed_in_one_batch"]),
            (ReadersShareALease, &["rwlock::a_renewal_of_a_reader_extends_no_other"]),
            (PermitsShareALease, &["semaphore::a_renewal_of_permits_extends_no_other"]),
            (LongLeasesWrap, &["lease::the_longest_lease_is_kept_whole"]),
            (NeverExpiresLeases, &["lease::the_next_claim_is_granted_when_a_lease_ends"]),
            (KeepsDeadWaiters, &["lease::a_waiter_without_heartbeats_leaves_the_queue"]),
            (LeaseFromTheQueue, &["lease::the_deadline_after_a_hand_off_ends_before_the_next_grant"]),
            (LeaseFromTheReply, &["lease::the_local_deadline_passes_before_the_next_grant"]),
            (LeaseFromTheTransaction, &["lease::the_local_deadline_passes_before_the_next_grant"]),
            (AdoptsTheOldClaim, &["lease::a_hold_acquired_again_outlives_its_deadline"]),
            (LeaseFromTheAnswer, &["lease::a_late_answer_does_not_move_the_deadline"]),
            (LeaseFromTheWakeUp, &["lease::a_late_answer_after_a_wait_does_not_move_the_deadline"]),
            (RenewalFromTheTransaction, &["lease::a_renewed_lease_lasts_from_the_call"]),
            (RenewalStrengthens, &["rwlock::a_renewal_never_strengthens_a_claim"]),
            (DroppedRenewalBlocks, &["cancel::renewals_and_reads_may_be_dropped"]),
            (
                GivesUpSentAcquires,
                &["cancel::a_request_that_waits_for_its_answer_at_every_poll"],
            ),
            (ResendKeepsTheLease, &["resend::an_acquire_sent_again_renews_the_position"]),
            (StoreNameByClient, &["claims::all_clients_name_the_same_store"]),
            (TableByClient, &["exclusion::clients_never_hold_together"]),
            (ForgetsTheLastToken, &["claims::the_last_token_outlives_its_claim"]),
            (ReleaseGrantsNobody, &["claims::a_release_grants_one_claim"]),
            (CancelledWaiterStays, &["cancel::a_cancelled_waiter_leaves_the_queue"]),
            (CancelGrantsNobody, &["claims::a_cancellation_grants_claims_that_now_fit"]),
            (BusyTryStays, &["claims::busy_leaves_no_trace"]),
            (DowngradeGrantsAWriter, &["rwlock::a_downgrade_grants_no_writer_in_between"]),
            (DowngradeIgnored, &["rwlock::a_downgrade_grants_no_writer_in_between"]),
            (DowngradeGrantsNobody, &["claims::a_downgrade_grants_claims_that_now_fit"]),
            (DowngradeKeepsTheLease, &["lease::a_downgraded_lease_lasts_from_the_call"]),
            (WeightsIgnored, &["semaphore::weights_count"]),
            (LightPassHeavy, &["semaphore::a_claim_for_many_is_not_starved"]),
            (AnyCapacity, &["semaphore::another_number_of_permits_is_refused_while_in_use"]),
            (KeepsPartOfASet, &["multi::a_try_takes_none_when_one_is_busy"]),
            (SetHasTheFirstLease, &["multi::each_of_several_acquires_has_its_own_lease"]),
            (SetHasTheShortestLease, &["multi::each_of_several_acquires_has_its_own_lease"]),
            (SomeClientsAcquireOneByOne, &["multi::overlapping_sets_do_not_deadlock"]),
            (FoldsNames, &["names::hostile_names_are_all_different"]),
            (TrimsNames, &["names::hostile_names_are_all_different"]),
            (CutsNames, &["names::long_names_are_not_cut"]),
            (NeverAlreadyLost, &["resend::a_release_sent_again_finds_nothing"]),
            (InspectShowsExpired, &["claims::inspect_changes_nothing"]),
            (InspectShowsTheWholeLease, &["lease::the_remaining_time_shrinks"]),
            (InspectShowsExclusiveOnly, &["claims::inspect_shows_the_current_state"]),
            (LastComeFirstServed, &["fair::grants_follow_the_order_of_arrival"]),
            (IgnoresRaisedTokens, &["raised_tokens::tokens_of_all_clients_rise_above_it"]),
            (ReleasedBlockLowersTokens, &["raised_tokens::a_released_block_does_not_lower_it"]),
            (TokensAreDoubles, &["raised_tokens::tokens_beyond_2_to_the_53_grow_or_are_refused"]),
            (LeavesRecords, &["exclusion::a_released_lock_is_free_for_others"]),
            (ListsByPattern, &["list::a_prefix_is_not_a_pattern"]),
            (ListsFolded, &["list::a_prefix_is_not_a_pattern"]),
            (ListsLongerNamesOnly, &["list::names_with_the_prefix_are_listed"]),
            (ListsFreeNames, &["list::a_free_lock_is_not_listed"]),
            (ListsHoldersOnly, &["list::a_name_that_only_waits_is_listed"]),
            (ListsWritersOnly, &["list::names_with_many_claims_are_listed_once"]),
            (ListsClaims, &["list::names_with_many_claims_are_listed_once"]),
            (ListsAll, &["list::no_more_are_listed_than_asked_for"]),
            (AgeOfTheLease, &["claims::a_claim_grows_older_and_no_renewal_makes_it_younger"]),
            (AgeOfTheLock, &["claims::a_claim_is_no_older_than_its_grant"]),
            (RenewalForgetsTheNote, &["notes::no_renewal_changes_a_note"]),
            (OneNoteForAll, &["notes::claims_that_share_have_a_note_each"]),
            (WaitersWithoutNotes, &["notes::a_waiter_has_its_note_and_keeps_it"]),
            (FoldsNotes, &["notes::every_note_is_stored_unchanged"]),
            (PanicsWithoutItsRuntime, &["errors::waits_end_with_an_error_when_their_runtime_ends"]),
        ]
    };
}
