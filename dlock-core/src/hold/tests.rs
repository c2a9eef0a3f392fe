//! Tests of holds and the renewal queue, without a store, a clock or a runtime.

use std::{sync::Arc, time::Duration};

use super::{Hold, local_queue::LocalQueue, renewal_queue::RenewalQueue, renewal_queue::Step};
use crate::{
    AcquireRequest, Ended, FencingToken, Grant, GuardState, Instant, LockName, LockOptions, Mode,
    Renew, Renewed,
};

fn at(seconds: f64) -> Instant {
    Instant::from_nanos(0).saturating_add(Duration::from_secs_f64(1000.0 + seconds))
}

fn name(text: &str) -> LockName {
    LockName::new(text).unwrap()
}

/// Returns a hold that was granted at `at(0.0)`, with tokens from 7 on.
fn granted(tokens: u32, options: LockOptions) -> Hold {
    let lease = options.lease() + options.lock_delay();
    let request = AcquireRequest::new(name("n"), Mode::Exclusive, lease).with_tokens(tokens);
    let grant = Grant::new(FencingToken::new(7).unwrap(), tokens, at(0.0));
    Hold::new(request, grant, options, None)
}

fn hold() -> Arc<Hold> {
    Arc::new(granted(1, LockOptions::new()))
}

fn queued(hold: &Arc<Hold>) -> RenewalQueue {
    let mut queue = RenewalQueue::default();
    assert!(!queue.add(hold, &|_| 0, || at(0.0)).over);
    queue
}

#[test]
fn hold_ends_once() {
    for (first, second) in [(Ended::Released, Ended::Revoked), (Ended::StoreReset, Ended::Released)]
    {
        let hold = hold();
        assert_eq!((hold.state(), hold.ended()), (GuardState::Held, None));
        assert!(hold.end(first) && !hold.end(second));
        assert_eq!((hold.state(), hold.ended()), (GuardState::Lost, Some(first)));
    }
}

#[test]
fn every_reason_of_a_loss_is_recorded() {
    for how in [Ended::Expired, Ended::Revoked, Ended::ClockStep, Ended::StoreReset] {
        let hold = hold();
        hold.doubt();
        assert!(hold.end(how));
        assert_eq!(hold.ended(), Some(how));
    }
}

#[test]
fn late_answer_does_not_bring_back_a_hold() {
    let hold = hold();
    hold.doubt();
    assert!(hold.is_doubtful());
    hold.end(Ended::Expired);
    hold.renewed(at(1.0), Duration::from_secs(30));
    hold.doubt();
    assert_eq!(hold.ended(), Some(Ended::Expired));
}

#[test]
fn block_gives_each_token_once_and_none_after_a_loss() {
    let hold = granted(3, LockOptions::new());
    let first = hold.first_token();
    assert_eq!(hold.next_token(), Some(first.plus(1)));
    assert_eq!(hold.claim().used, 2);
    // The former guard has handed the hold off, so the loss belongs to the next guard.
    hold.end(Ended::Revoked);
    assert_eq!(hold.next_token(), None);
    assert_eq!(hold.ended_for(first), Some(Ended::Released));
    assert_eq!(hold.ended_for(first.plus(1)), Some(Ended::Revoked));
    assert_eq!(hold.claim().used, 2);

    let short = granted(1, LockOptions::new());
    assert_eq!((short.next_token(), short.was_handed_off()), (None, false));
}

#[test]
fn the_local_deadline_precedes_the_lease_end_and_only_grows() {
    let hold = hold();
    assert_eq!(hold.valid_until(), at(30.0 - 0.31));
    assert!(!hold.is_over(|| at(29.6)) && hold.is_over(|| at(29.7)));
    hold.renewed(at(10.0), Duration::from_secs(30));
    assert_eq!((hold.began(), hold.valid_until()), (at(10.0), at(40.0 - 0.31)));
    hold.renewed(at(5.0), Duration::from_secs(30));
    assert_eq!((hold.began(), hold.valid_until()), (at(10.0), at(40.0 - 0.31)));
}

#[test]
fn renewal_is_due_after_a_third_and_stops_at_its_limit() {
    let limit = Duration::from_secs(45);
    let hold = Arc::new(granted(1, LockOptions::new().with_renew(Renew::For(limit))));
    let mut queue = queued(&hold);
    let due = queue.collect(at(9.0), &|_| 0);
    assert!(due.batches.is_empty() && due.next_check == Some(at(10.0)));
    let [batch] = &mut queue.collect(at(10.0), &|_| 0).batches[..] else { panic!("no batch") };
    assert_eq!(batch.renewals[0].lease, Duration::from_secs(30));
    batch.sent = at(10.0);
    // The renewal is in flight, so no other one is sent.
    assert!(queue.collect(at(20.0), &|_| 0).batches.is_empty());
    queue.settle(batch, Some(&[Renewed::Kept]), at(20.0));
    let [last] = &mut queue.collect(at(20.0), &|_| 0).batches[..] else { panic!("no batch") };
    assert_eq!(last.renewals[0].lease, Duration::from_secs(25));
    last.sent = at(20.0);
    queue.settle(last, Some(&[Renewed::Kept]), at(20.0));
    // When the next renewal is due, the remaining lease is shorter than the shortest lease.
    for _ in 0..40 {
        let Some(next) = queue.collect(at(44.0), &|_| 0).next_check else { break };
        assert!(next <= hold.valid_until());
    }
}

#[test]
fn lease_that_runs_out_is_late() {
    let hold = Arc::new(granted(1, LockOptions::new().with_renew(Renew::Never)));
    let mut queue = queued(&hold);
    assert!(queue.collect(at(29.0), &|_| 0).late.is_empty());
    let due = queue.collect(at(29.7), &|_| 0);
    assert!(due.batches.is_empty() && due.late.len() == 1);
    queue.take(&hold);
    assert_eq!(queue.collect(at(29.8), &|_| 0).next_check, None);
}

#[test]
fn answers_distinguish_renewed_lost_and_doubtful_holds() {
    let holds: Vec<_> = (0..5).map(|_| hold()).collect();
    let mut queue = RenewalQueue::default();
    for hold in &holds {
        queue.add(hold, &|_| 0, || at(0.0));
    }
    holds[4].leave_until(at(300.0));
    let mut due = queue.collect(at(10.0), &|_| 0);
    let [batch] = &mut due.batches[..] else { panic!("more than one batch") };
    batch.sent = at(10.0);
    // In the order of the batch, which is that of the list.
    let lease = |hold: &Arc<Hold>| {
        batch.renewals.iter().position(|renewal| renewal.claim.id == hold.id).unwrap()
    };
    let mut answers = vec![Renewed::Kept; 5];
    answers[lease(&holds[1])] = Renewed::Lost;
    answers[lease(&holds[2])] = Renewed::Forgotten;
    answers[lease(&holds[3])] = Renewed::Unknown;
    let settled = queue.settle(batch, Some(&answers), at(11.0));
    assert_eq!((settled.renewed, settled.failed), (2, 1));
    let lost = |how| settled.lost.iter().find(|(_, of)| *of == how).map(|(hold, _)| hold.id);
    assert_eq!(lost(Ended::Revoked), Some(holds[1].id));
    assert_eq!(lost(Ended::StoreReset), Some(holds[2].id));
    assert!(holds[3].is_doubtful() && !holds[0].is_doubtful());
    assert_eq!(settled.parted.len(), 1);
    assert_eq!(settled.parted[0].id, holds[4].id);
    assert_eq!(holds[0].began(), at(10.0));
    // If no answer arrives, every hold is in doubt and none is lost.
    let mut again = queue.collect(at(20.0), &|_| 0);
    let settled = queue.settle(&again.batches.remove(0), None, at(21.0));
    assert!(settled.lost.is_empty() && settled.failed > 0);
}

#[test]
fn hold_that_was_released_meanwhile_is_not_lost() {
    for answers in [Some(&[Renewed::Lost]), Some(&[Renewed::Forgotten]), None] {
        let hold = hold();
        let mut queue = queued(&hold);
        let batch = queue.collect(at(10.0), &|_| 0).batches.remove(0);
        assert!(hold.end(Ended::Released));
        let settled = queue.settle(&batch, answers.map(|answers| &answers[..]), at(11.0));
        assert_eq!((settled.renewed, settled.lost.len(), settled.failed), (0, 0, 0), "{answers:?}");
    }
}

#[test]
fn a_step_shortens_earlier_leases_and_renews_them_at_once() {
    let hold = hold();
    let mut queue = queued(&hold);
    let step = |shard, by: u64, seen| Step {
        shard,
        forward: true,
        by: Duration::from_secs(by),
        seen: at(seen),
    };
    assert!(queue.stepped(step(1, 3600, 1.0), at(1.0), &|_| 0).is_empty());
    assert_eq!(hold.valid_until(), at(30.0 - 0.31));
    assert!(queue.stepped(step(0, 10, 1.0), at(1.0), &|_| 0).is_empty());
    assert_eq!(hold.valid_until(), at(20.0 - 0.31));
    let mut due = queue.collect(at(1.0), &|_| 0);
    let [batch] = &mut due.batches[..] else { panic!("it is not renewed") };
    batch.sent = at(1.0);
    // The clock steps again while the renewal is in flight, so it is sent once more.
    assert!(queue.stepped(step(0, 10, 2.0), at(2.0), &|_| 0).is_empty());
    queue.settle(batch, Some(&[Renewed::Kept]), at(3.0));
    assert_eq!(hold.valid_until(), at(10.0 - 0.31));
    assert_eq!(queue.collect(at(3.0), &|_| 0).batches.len(), 1);
    // A step past the end of the lease.
    let over = queue.stepped(step(0, 10, 4.0), at(4.0), &|_| 0);
    assert_eq!(over.len(), 1);
}

#[test]
fn grant_on_its_way_is_cut_by_a_step() {
    let (early, late) = (hold(), hold());
    let mut queue = RenewalQueue::default();
    let step = Step { shard: 0, forward: true, by: Duration::from_secs(29), seen: at(0.5) };
    queue.stepped(step, at(0.5), &|_| 0);
    let added = queue.add(&early, &|_| 0, || at(0.6));
    assert!(!added.over && early.valid_until() < at(1.0));
    assert_eq!(queue.collect(at(0.6), &|_| 0).batches.len(), 1);
    assert!(queue.add(&late, &|_| 0, || at(5.0)).over);
    assert!(!queue.add(&hold(), &|_| 1, || at(5.0)).over);
}

#[test]
fn the_task_is_woken_for_a_hold_due_before_the_next_check() {
    let (first, second) = (hold(), hold());
    let mut queue = RenewalQueue::default();
    assert!(queue.add(&first, &|_| 0, || at(0.0)).sooner);
    assert!(!queue.add(&second, &|_| 0, || at(0.0)).sooner);
    assert_eq!(queue.collect(at(0.0), &|_| 0).next_check, Some(at(10.0)));
    assert!(queue.expedite(&second, at(1.0)) && !queue.expedite(&first, at(2.0)));
    assert_eq!(queue.collect(at(1.0), &|_| 0).batches.len(), 1);
}

#[test]
fn shards_and_leases_of_one_length_share_a_batch() {
    let short = LockOptions::new().with_lease(Duration::from_secs(29));
    let mut queue = RenewalQueue::default();
    let holds: Vec<_> =
        [LockOptions::new(), LockOptions::new(), short].map(|of| Arc::new(granted(1, of))).into();
    for hold in &holds {
        queue.add(hold, &|_| 0, || at(0.0));
    }
    assert_eq!(queue.collect(at(10.0), &|_| 0).batches.len(), 2);
}

#[test]
fn local_waiters_are_reported_once() {
    let options = Arc::new(LockOptions::new());
    let local = Arc::new(LocalQueue::new(&name("n"), &options));
    let mut hold = granted(1, *options);
    hold.queue = Some(Arc::clone(&local));
    let hold = Arc::new(hold);
    let mut queue = queued(&hold);
    assert!(local.try_begin());
    let _ticket = local.join(std::task::Waker::noop());
    assert!(queue.collect(at(10.0), &|_| 0).own.is_empty());
    hold.renewed(at(20.0), Duration::from_secs(30));
    queue.expedite(&hold, at(31.0));
    queue.collect(at(31.0), &|_| 0);
    hold.slot.set_renewing(false);
    assert!(!local.warns(), "it was told before");
}
