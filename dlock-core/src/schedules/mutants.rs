//! Checks that each scenario fails if a primitive that it relies on is broken.

use super::{
    end, hand_off, leave, notices, renewal,
    world::Answers::{AtOnce, Later},
};
use crate::sync::Mutant::{LostJob, LostNotice, LostTurn, LostWake, SentAnyway, TornState};

#[test]
fn a_hand_off_needs_a_state_in_one_piece() {
    notices(TornState, || hand_off::within_a_process(AtOnce), "deadlock");
}

#[test]
fn the_confirmation_of_work_needs_its_notice() {
    notices(LostNotice, || hand_off::of_work(AtOnce), "deadlock");
}

#[test]
fn processes_need_to_be_woken() {
    notices(LostWake, || hand_off::between_processes(Later), "deadlock");
}

#[test]
fn renewal_against_release_needs_a_state_in_one_piece() {
    notices(TornState, || renewal::against_release(AtOnce), "");
}

#[test]
fn a_renewed_lock_needs_a_waiter_that_is_woken() {
    notices(LostWake, || renewal::renewed(AtOnce), "deadlock");
}

#[test]
fn the_end_by_release_needs_its_notice() {
    notices(LostNotice, || end::released(AtOnce), "deadlock");
}

#[test]
fn the_end_by_expiry_needs_a_state_in_one_piece() {
    notices(TornState, || end::expired(AtOnce), "");
}

#[test]
fn the_end_by_revocation_needs_a_state_in_one_piece() {
    notices(TornState, || end::revoked(AtOnce), "");
}

#[test]
fn a_waiter_that_goes_needs_to_give_its_turn_back() {
    notices(LostTurn, || leave::dropped(AtOnce), "deadlock");
}

#[test]
fn a_waiter_that_times_out_needs_to_give_its_turn_back() {
    notices(LostTurn, || leave::timed_out(AtOnce), "deadlock");
}

#[test]
fn a_dropped_waiter_needs_its_cancellation() {
    notices(LostJob, || leave::dropped_waiter(Later), "deadlock");
}

#[test]
fn a_dropped_waiter_needs_its_request_to_stay_unsent() {
    notices(SentAnyway, || leave::dropped_waiter(Later), "deadlock");
}

#[test]
fn a_shutdown_needs_the_releases_behind_it() {
    notices(LostJob, leave::shut_down, "shut down before it was given back");
}
