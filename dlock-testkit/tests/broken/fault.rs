//! The fault of each broken store, and the cases that have to find it.

/// What is wrong with a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// A release by anybody ends the hold of whoever has it.
    ForgetsTheOwner,
    /// A waiter that withdraws ends the hold of the holder.
    ReleasesAnothers,
    /// A release by whoever has lost the lock ends the hold of whoever has it since.
    ReleasesTheNext,
    /// Tokens start again when nobody holds or waits.
    ResetsTokens,
    /// Tokens are counted and nothing else, and the store may lose the count.
    CountsTokens,
    /// Tokens are drawn by lot.
    DrawsTokens,
    /// A grant has the token of the one before it.
    RepeatsTokens,
    /// Readers that are let in together have one token.
    OneTokenForAllReaders,
    /// A block of tokens counts as one.
    BlocksOverlap,
    /// An acquire sent again for a hold has a new token.
    NewTokenForAResend,
    /// A waiter hears only what is said while it listens.
    LosesWakeUps,
    /// A waiter hears of releases, and not of leases that end.
    NoWakeUpAtLeaseEnd,
    /// A waiter is told nothing, and looks once.
    TellsNobody,
    /// A waiter that is woken takes itself for the holder, whether or not it is in the queue.
    BelievesTheWakeUp,
    /// A writer does not mind readers.
    WriterBesideReaders,
    /// Two holders fit where one should.
    TwoHolders,
    /// Whoever comes by the same client as the holder enters with it.
    EntersByClient,
    /// A reader does not mind writers that wait.
    ReadersPassWriters,
    /// An acquire that is sent again is a second one.
    CountsAResendTwice,
    /// A waiter that asks again goes to the end of the queue.
    ResendLosesThePlace,
    /// Waiting for the grant starts at the end of the queue.
    WaitingLosesThePlace,
    /// Waiting for the grant of a claim that is gone joins the queue again.
    RejoinsInSilence,
    /// Waiting does not keep the place alive.
    ForgetsWaiters,
    /// A renewal takes a lock whose lease has ended.
    RenewalResurrects,
    /// Whoever renews is told that it holds the lock.
    RenewalAlwaysKept,
    /// A renewal by whoever has lost the lock is one of the hold of whoever has it since.
    RenewsTheNext,
    /// A renewal leaves the lease as it was.
    RenewalDoesNothing,
    /// Of two renewals of a claim, the one that arrives last sets the lease.
    TheLastToArriveWins,
    /// An acquire that is sent again sets the lease, also to a shorter one.
    AResendCutsTheLease,
    /// A renewal extends a lease that the last renewal has set.
    RenewsAfterTheLast,
    /// Of several renewals the first is done and all are confirmed.
    RenewsTheFirstOnly,
    /// Leases do not end.
    IgnoresLeaseEnd,
    /// The places of dead waiters do not end.
    KeepsDeadWaiters,
    /// The lease of a grant goes on from when the claim joined the queue.
    LeaseFromTheQueue,
    /// The lease is believed to begin when the reply has arrived.
    SinceTheReply,
    /// The lease is believed to begin when the answer is read.
    SinceTheAnswer,
    /// The lease of a waiter is believed to begin when it learns of the grant.
    SinceTheWakeUp,
    /// The lease of a renewal begins some time before the call.
    RenewsFromATransaction,
    /// A renewal in a stronger mode makes the claim stronger.
    RenewalStrengthens,
    /// A renewal that is dropped blocks those behind it.
    BreaksWhenDropped,
    /// A repeated acquire of a waiter leaves its lease as it was.
    ResendKeepsTheLease,
    /// Each client has another name for the store.
    NamesByClient,
    /// Each client sees a table of its own, as behind a temporary table of its session.
    TableByClient,
    /// The last token of a free lock is unknown.
    ForgetsTheLastToken,
    /// The lease is believed to begin later, by as much as the core takes off at its end.
    TakesTheMargin,
    /// Who asks again for what it holds believes in a new lease.
    AdoptsTheOld,
    /// The lease begins some time before the grant, when a transaction began.
    LeaseFromTheTransaction,
    /// A release frees the lock and lets nobody in.
    ReleaseLetsNobodyIn,
    /// A waiter that withdraws stays in the queue.
    WithdrawnStays,
    /// A withdrawn waiter's place is freed and those behind are not let in.
    WithdrawalLetsNobodyIn,
    /// A try that is busy waits in line.
    TryStays,
    /// A downgrade is a release and a new claim.
    DowngradeLetsAWriterIn,
    /// A downgrade changes nothing.
    DowngradeIgnored,
    /// Waiting readers are not let in by a downgrade.
    DowngradeWakesNobody,
    /// Each claim counts as one permit.
    WeightsIgnored,
    /// Light claims pass a heavy one that waits.
    LightPassHeavy,
    /// Semaphores of any size share a name.
    AnyCapacity,
    /// Of several locks it keeps those that were free.
    KeepsPartOfSeveral,
    /// Some clients take several locks at once, and others one by one.
    TogetherByClient,
    /// Names are folded to lower case.
    FoldsNames,
    /// Names lose their blanks at the end.
    TrimsNames,
    /// Names are cut at 255 bytes.
    CutsNames,
    /// A release always says that the lock was held.
    NeverAlreadyLost,
    /// Inspect shows holders whose lease has ended.
    InspectShowsTheDead,
    /// Inspect shows no mode but exclusive.
    InspectLiesAboutModes,
    /// The last in line comes first.
    LastComeFirstServed,
    /// A floor for tokens changes nothing.
    IgnoresTheFloor,
    /// A block that is given back takes the floor with it.
    FloorEndsWithABlock,
    /// A record stays of each name.
    LeavesRecords,
    /// The beginning of names to list is a pattern.
    ListsByPattern,
    /// The beginning of names to list is looked for without regard to case.
    ListsFolded,
    /// What begins with a name is listed only behind it.
    ListsBehind,
    /// Names that were free long ago are listed.
    ListsTheFree,
    /// Names that only wait are not listed.
    ListsHoldersOnly,
    /// Names with readers or permits are not listed.
    ListsWritersOnly,
    /// A name is listed once for each claim.
    ListsClaims,
    /// More names are listed than were asked for.
    ListsAll,
    /// The age of a claim is that of its lease.
    AgeOfTheLease,
    /// The age of a claim is that of the lock.
    AgeOfTheLock,
    /// A renewed claim has no note.
    RenewalForgetsTheNote,
    /// All claims have the note of the first.
    OneNoteForAll,
    /// Who waits has no note.
    WaitersWithoutNotes,
    /// A note is kept in ASCII.
    FoldsNotes,
    /// A wait panics if the runtime of its client ends.
    PanicsWithoutItsRuntime,
}

impl Fault {
    /// Each that the cases see, with those that are tried first.
    #[rustfmt::skip]
    pub(crate) const ALL: &[(Self, &[&str])] = {
        use Fault::*;
        &[
            (ForgetsTheOwner, &["resend::a_release_of_an_unknown_claim_changes_nothing"]),
            (ReleasesAnothers, &["claims::a_release_cancels_a_waiter"]),
            (ReleasesTheNext, &["loss::a_lost_guard_does_not_affect_the_next_holder"]),
            (ResetsTokens, &["fencing::token_grows_after_release"]),
            (CountsTokens, &["fencing::token_grows_after_the_store_forgot_the_name"]),
            (DrawsTokens, &["fencing::token_grows_across_clients_and_kinds"]),
            (RepeatsTokens, &["fencing::a_fence_refuses_a_former_holder"]),
            (OneTokenForAllReaders, &["fencing::readers_have_a_token_each"]),
            (BlocksOverlap, &["fencing::blocks_of_tokens_do_not_meet", "fencing::an_expired_block_is_passed_over"]),
            (NewTokenForAResend, &["resend::an_acquire_sent_again_is_one_hold"]),
            (LosesWakeUps, &["claims::granted_answers_for_a_holder"]),
            (NoWakeUpAtLeaseEnd, &["claims::a_waiter_learns_that_a_lease_ended"]),
            (TellsNobody, &["claims::no_wake_up_is_lost"]),
            (BelievesTheWakeUp, &["claims::a_waiter_that_lost_its_position_gets_an_error"]),
            (WriterBesideReaders, &["rwlock::a_writer_is_alone"]),
            (TwoHolders, &["exclusion::clients_never_hold_together"]),
            (EntersByClient, &["exclusion::tasks_without_handoff_never_hold_together"]),
            (ReadersPassWriters, &["rwlock::a_reader_does_not_pass_a_waiting_writer"]),
            (CountsAResendTwice, &["resend::resent_permits_are_counted_once"]),
            (ResendLosesThePlace, &["resend::a_waiter_that_retries_keeps_its_position"]),
            (WaitingLosesThePlace, &["fair::waiting_again_keeps_the_position"]),
            (RejoinsInSilence, &["claims::a_waiter_that_lost_its_position_gets_an_error"]),
            (ForgetsWaiters, &["claims::a_waiter_keeps_its_position_for_as_long_as_it_waits"]),
            (RenewalResurrects, &["lease::an_expired_claim_is_not_renewed"]),
            (RenewalAlwaysKept, &["loss::a_revocation_is_reported_to_the_holder"]),
            (RenewsTheNext, &["lease::an_expired_claim_is_not_renewed"]),
            (RenewalDoesNothing, &["lease::a_renewal_restarts_the_lease"]),
            (TheLastToArriveWins, &["lease::a_late_request_does_not_shorten_the_lease"]),
            (AResendCutsTheLease, &["lease::a_late_request_does_not_shorten_the_lease"]),
            (RenewsAfterTheLast, &["lease::no_renewal_extends_the_lease_after_the_last"]),
            (RenewsTheFirstOnly, &["lease::renewals_are_answered_one_by_one"]),
            (IgnoresLeaseEnd, &["lease::the_next_claim_is_granted_when_a_lease_ends"]),
            (KeepsDeadWaiters, &["lease::a_waiter_without_heartbeats_leaves_the_queue"]),
            (LeaseFromTheQueue, &["lease::the_deadline_after_a_hand_off_ends_before_the_next_grant"]),
            (SinceTheReply, &["lease::the_local_deadline_passes_before_the_next_grant"]),
            (LeaseFromTheTransaction, &["lease::the_local_deadline_passes_before_the_next_grant"]),
            (SinceTheAnswer, &["lease::a_late_answer_does_not_move_the_deadline"]),
            (SinceTheWakeUp, &["lease::a_late_answer_after_a_wait_does_not_move_the_deadline"]),
            (RenewsFromATransaction, &["lease::a_renewed_lease_lasts_from_the_call"]),
            (RenewalStrengthens, &["rwlock::a_renewal_never_strengthens_a_claim"]),
            (BreaksWhenDropped, &["cancel::renewals_and_reads_may_be_dropped"]),
            (ResendKeepsTheLease, &["resend::an_acquire_sent_again_renews_the_position"]),
            (NamesByClient, &["claims::all_clients_name_the_same_store"]),
            (TableByClient, &["exclusion::clients_never_hold_together"]),
            (ForgetsTheLastToken, &["claims::the_last_token_outlives_its_claim"]),
            (ReleaseLetsNobodyIn, &["claims::a_release_grants_one_claim"]),
            (WithdrawnStays, &["cancel::a_cancelled_waiter_leaves_the_queue"]),
            (WithdrawalLetsNobodyIn, &["claims::a_cancellation_grants_claims_that_now_fit"]),
            (TryStays, &["claims::busy_leaves_no_trace"]),
            (DowngradeLetsAWriterIn, &["rwlock::a_downgrade_grants_no_writer_in_between"]),
            (DowngradeIgnored, &["rwlock::a_downgrade_grants_no_writer_in_between"]),
            (DowngradeWakesNobody, &["claims::a_downgrade_grants_claims_that_now_fit"]),
            (WeightsIgnored, &["semaphore::weights_count"]),
            (LightPassHeavy, &["semaphore::a_claim_for_many_is_not_starved"]),
            (AnyCapacity, &["semaphore::another_number_of_permits_is_refused_while_in_use"]),
            (KeepsPartOfSeveral, &["multi::a_try_takes_none_when_one_is_busy"]),
            (TogetherByClient, &["multi::overlapping_sets_do_not_deadlock"]),
            (FoldsNames, &["names::hostile_names_are_all_different"]),
            (TrimsNames, &["names::hostile_names_are_all_different"]),
            (CutsNames, &["names::long_names_are_not_cut"]),
            (NeverAlreadyLost, &["resend::a_release_sent_again_finds_nothing"]),
            (InspectShowsTheDead, &["claims::inspect_changes_nothing"]),
            (InspectLiesAboutModes, &["claims::inspect_shows_the_current_state"]),
            (LastComeFirstServed, &["fair::grants_follow_the_order_of_arrival"]),
            (IgnoresTheFloor, &["raised_tokens::tokens_of_all_clients_rise_above_it"]),
            (FloorEndsWithABlock, &["raised_tokens::a_released_block_does_not_lower_it"]),
            (LeavesRecords, &["exclusion::a_released_lock_is_free_for_others"]),
            (ListsByPattern, &["list::a_prefix_is_not_a_pattern"]),
            (ListsFolded, &["list::a_prefix_is_not_a_pattern"]),
            (ListsBehind, &["list::names_with_the_prefix_are_listed"]),
            (ListsTheFree, &["list::a_free_lock_is_not_listed"]),
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
