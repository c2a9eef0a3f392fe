//! The choice of the jobs that go into one statement.
//!
//! The order within each queue is kept: a job never overtakes an earlier job, which may be about
//! the same name. A statement has at most [`SHARED`] operations, so that one slow row delays few
//! others.

use std::collections::{HashSet, VecDeque};

use dlock_core::{
    Error, ErrorKind, LockName, Note, Renewal,
    machine::{Op, text::snapshot},
};
use hashbrown::HashMap;

use super::{
    cache::Cache,
    conn::Conn,
    job::{Job, PendingOp},
    row::{Row, Wanted},
};

/// The largest number of operations in a statement that several jobs share. A job with more gets
/// its own statement.
pub(crate) const SHARED: usize = 64;

/// The largest number of bytes of an operation in a statement, with its name in hexadecimal digits.
const LARGEST: usize = 2 * LockName::MAX_BYTES + 3 * Note::MAX_BYTES + 192;

/// Returns the number of operations that fit into a statement of this size.
pub(crate) fn fitting(bytes: usize) -> usize {
    (bytes / LARGEST).max(1)
}

/// Takes the jobs for the next statement: the first one, and the jobs behind it that fit, with at
/// most `most` operations. The first queue goes before the second. Their acquires have begun now:
/// the others can still be given up.
pub(crate) fn take(queues: [&mut VecDeque<Job>; 2], most: usize) -> Vec<Job> {
    let mut room = SHARED.min(most);
    let mut taken = Vec::new();
    // If a job of the first queue does not fit, the second queue has to wait. Otherwise claims
    // could delay a large batch of renewals for ever.
    for waiting in queues {
        waiting.retain(|job| !job.is_moot());
        let fits = |job: &&Job| {
            let left = room.checked_sub(job.ops.len());
            room = left.unwrap_or_default();
            left.is_some()
        };
        let many = waiting.iter().take_while(fits).count();
        let many = if taken.is_empty() { many.max(1).min(waiting.len()) } else { many };
        taken.extend(waiting.drain(..many).filter(Job::begin));
        if !waiting.is_empty() {
            break;
        }
    }
    taken
}

/// Splits renewals into statements with distinct names and a bounded size. A statement can change a
/// row only once, so two claims of one name go into different statements.
pub(crate) fn distinct(renewals: &[Renewal], most: usize) -> Vec<Vec<usize>> {
    let mut seen = HashMap::with_capacity(renewals.len());
    let mut rounds: Vec<Vec<usize>> = Vec::new();
    for (at, renewal) in renewals.iter().enumerate() {
        let round = seen.entry(&renewal.claim.name).or_insert(0usize);
        if *round == rounds.len() {
            rounds.push(Vec::new());
        }
        rounds[*round].push(at);
        *round += 1;
    }
    rounds.iter().flat_map(|round| round.chunks(most).map(<[usize]>::to_vec)).collect()
}

/// Refuses new claims for queues that are longer than half of a statement, after a read of the row.
/// The claims in the queue can still be renewed and released, so it gets shorter again.
pub(crate) async fn refuse_long_queues<C: Conn>(conn: &mut C, cache: &Cache, batch: &mut Vec<Job>) {
    let most = conn.most_bytes() / 2;
    let ops = batch.iter().flat_map(|job| &job.ops).filter(|pending| is_claim(&pending.op));
    let names: HashSet<&LockName> =
        ops.map(|pending| &pending.name).filter(|name| cache.length(name) > most).collect();
    if names.is_empty() {
        return;
    }
    let wanted: Vec<_> =
        names.into_iter().map(|name| Wanted { name: name.clone(), known: None }).collect();
    // If the read fails, the write decides.
    let Ok(seen) = conn.read(&wanted).await else { return };
    let rows = wanted.into_iter().zip(seen.rows);
    let full: HashSet<LockName> = rows
        .filter(|(_, row)| is_longer(row.as_ref().and_then(|row| row.as_ref().ok()), most))
        .map(|(wanted, _)| wanted.name)
        .collect();
    let is_refused = |pending: &PendingOp| is_claim(&pending.op) && full.contains(&pending.name);
    for mut job in batch.extract_if(.., |job| job.ops.iter().any(is_refused)) {
        job.fail(&Error::new(
            ErrorKind::Unavailable,
            format!(
                "the queue of this lock is too long for one statement ({most} bytes): reduce the \
                 number of waiters, or raise max_allowed_packet"
            ),
        ));
    }
}

fn is_claim(op: &Op) -> bool {
    matches!(op, Op::Acquire { .. } | Op::Join { .. })
}

/// Returns whether the state of a row is longer than this as text.
fn is_longer(row: Option<&Row>, most: usize) -> bool {
    let replayed = row.and_then(|row| row.replay().ok());
    replayed.is_some_and(|replayed| snapshot(&replayed.machine).len() > most)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dlock_core::{Claim, ClaimId, Mode, machine::Op};

    use super::*;
    use crate::engine::job::PendingOp;

    type Receivers = Vec<tokio::sync::oneshot::Receiver<crate::engine::job::Answers>>;

    /// Takes the jobs of one queue.
    fn take(waiting: &mut VecDeque<Job>, most: usize) -> Vec<Job> {
        super::take([&mut VecDeque::new(), waiting], most)
    }

    fn jobs(names: &[&str]) -> (VecDeque<Job>, Receivers) {
        let pending = |name: &str| {
            let renew = Op::Renew {
                claim: ClaimId::random(),
                mode: dlock_core::Mode::Exclusive,
                lease: 1,
                is_last: false,
            };
            PendingOp::new(LockName::new(name).unwrap(), renew)
        };
        names.iter().map(|names| Job::new(names.split(' ').map(pending).collect(), true)).unzip()
    }

    fn names(batch: &[Job]) -> Vec<String> {
        let of = |job: &Job| {
            job.ops.iter().map(|pending| pending.name.to_string()).collect::<Vec<_>>().join(" ")
        };
        batch.iter().map(of).collect()
    }

    #[test]
    fn jobs_keep_their_order_whatever_their_names() {
        let (mut waiting, _kept) = jobs(&["a", "b", "a", "c a"]);
        assert_eq!(names(&take(&mut waiting, 99)), ["a", "b", "a", "c a"]);
        assert!(take(&mut waiting, 99).is_empty());
    }

    #[test]
    fn a_large_job_goes_alone_and_a_batch_is_bounded() {
        let large = (0..100).map(|n| format!("l{n}")).collect::<Vec<_>>().join(" ");
        let small: Vec<_> = (0..100).map(|n| format!("s{n}")).collect();
        let mut all = vec![&*large];
        all.extend(small.iter().map(|name| &**name));
        let (mut waiting, _kept) = jobs(&all);
        assert_eq!(take(&mut waiting, 99).len(), 1);
        assert_eq!(take(&mut waiting, 99).len(), SHARED);
        assert_eq!(take(&mut waiting, 99).len(), 100 - SHARED);
    }

    #[test]
    fn a_small_statement_has_few_operations_and_one_at_least() {
        let (mut waiting, _kept) = jobs(&["a", "b", "c", "d e f"]);
        assert_eq!(names(&take(&mut waiting, fitting(2 * LARGEST))), ["a", "b"]);
        assert_eq!(names(&take(&mut waiting, fitting(0))), ["c"]);
        assert_eq!(names(&take(&mut waiting, fitting(0))), ["d e f"]);
        assert!(fitting(1 << 20) > 500);
    }

    #[test]
    fn a_dropped_request_is_skipped_unless_it_releases() {
        let (mut waiting, kept) = jobs(&["a", "b"]);
        waiting[1].ops[0].op = Op::Release { claim: ClaimId::random(), used: 0, bar: 0 };
        drop(kept);
        assert_eq!(names(&take(&mut waiting, 99)), ["b"]);
    }

    fn renewals(names: impl IntoIterator<Item = usize>) -> Vec<Renewal> {
        let of = |n: usize| {
            Renewal::new(
                Claim::new(LockName::new(&n.to_string()).unwrap(), ClaimId::random()),
                Mode::Shared,
                Duration::from_secs(1),
            )
        };
        names.into_iter().map(of).collect()
    }

    #[test]
    fn renewals_are_split_into_parts_of_distinct_names() {
        assert_eq!(distinct(&renewals([1, 2, 1, 1, 3]), 9), [vec![0, 1, 4], vec![2], vec![3]]);
        assert!(distinct(&[], 9).is_empty());
    }

    #[test]
    fn parts_are_bounded() {
        let lengths: Vec<_> = distinct(&renewals(0..1200), 500).iter().map(Vec::len).collect();
        assert_eq!(lengths, [500, 500, 200]);
    }

    #[test]
    fn urgent_requests_go_first_and_share_their_statement() {
        let ((mut urgent, _kept), (mut others, _others)) =
            (jobs(&["u1", "u2"]), jobs(&["a", "b", "c"]));
        let batch = super::take([&mut urgent, &mut others], 4);
        assert_eq!(names(&batch), ["u1", "u2", "a", "b"]);
        urgent.extend(jobs(&["x y z v w"]).0);
        let batch = super::take([&mut urgent, &mut others], 4);
        assert_eq!(names(&batch), ["c"], "nobody waits for the urgent one");
    }

    #[test]
    fn other_jobs_do_not_overtake_an_urgent_job_that_is_too_large() {
        let ((mut urgent, _kept), (mut others, _others)) =
            (jobs(&["u1", "x y z v w"]), jobs(&["a"]));
        for expected in [vec!["u1"], vec!["x y z v w"], vec!["a"]] {
            let batch = super::take([&mut urgent, &mut others], 4);
            assert_eq!(names(&batch), expected);
        }
    }
}
