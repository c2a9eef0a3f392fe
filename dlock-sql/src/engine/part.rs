//! Parts of a batch: the operations of one statement, and of smaller ones if that fails.
//!
//! A split must keep two rules. Operations that belong together stay in one part, or a multi-lock
//! would be half taken. All operations on one name stay in one part and in their order, or a claim
//! could overtake the release before it.

use std::{collections::HashSet, ops::Range, time::Duration};

use dlock_core::{Error, LockName, machine::Op};

use super::job::{Job, PendingOp};

/// The shortest time to wait for an answer.
const SHORTEST: Duration = Duration::from_millis(50);

/// Operations of one job of a batch that take effect together or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    job: usize,
    ops: Range<usize>,
}

impl Unit {
    pub(crate) fn of<'a>(&self, batch: &'a [Job]) -> &'a Job {
        &batch[self.job]
    }

    pub(crate) fn ops_of<'a>(&self, batch: &'a [Job]) -> &'a [PendingOp] {
        batch[self.job].ops.get(self.ops.clone()).unwrap_or_default()
    }
}

/// The units of one statement.
pub(crate) type Part = Vec<Unit>;

/// Returns all units of a batch.
pub(crate) fn whole(batch: &[Job]) -> Part {
    let mut part = Part::with_capacity(batch.len());
    for (job, Job { ops, together, .. }) in batch.iter().enumerate() {
        match together {
            true => part.push(Unit { job, ops: 0..ops.len() }),
            false => part.extend((0..ops.len()).map(|at| Unit { job, ops: at..at + 1 })),
        }
    }
    part
}

/// Returns the indices of its operations: the job, and the operation in it.
pub(crate) fn positions(part: &[Unit]) -> impl Iterator<Item = (usize, usize)> {
    part.iter().flat_map(|unit| unit.ops.clone().map(move |op| (unit.job, op)))
}

/// Its names.
pub(crate) fn names(batch: &[Job], part: &[Unit]) -> HashSet<LockName> {
    part.iter().flat_map(|unit| unit.ops_of(batch)).map(|pending| pending.name.clone()).collect()
}

/// Returns the units with one of these names, and the others.
pub(crate) fn touching(
    batch: &[Job],
    part: Part,
    is_one: impl Fn(&LockName) -> bool,
) -> (Part, Part) {
    part.into_iter()
        .partition(|unit| unit.ops_of(batch).iter().any(|pending| is_one(&pending.name)))
}

/// Leaves out units that are done, or for which no caller waits any more.
pub(crate) fn wanted(batch: &[Job], mut part: Part) -> Part {
    let mut last = (usize::MAX, false);
    part.retain(|unit| {
        if unit.ops_of(batch).iter().all(|pending| pending.result.is_some()) {
            return false;
        }
        // Checked once for each job: a caller that stops waiting meanwhile must not split its job.
        if last.0 != unit.job {
            last = (unit.job, batch[unit.job].is_moot());
        }
        !last.1
    });
    part
}

/// Splits a part into two halves with different names, so that a failure because of one name does
/// not affect the other half. Returns `None` if the whole part belongs together.
pub(crate) fn halves(batch: &[Job], part: &Part) -> Option<[Part; 2]> {
    let names = names(batch, part);
    let mut sorted: Vec<&LockName> = names.iter().collect();
    sorted.sort();
    let first: HashSet<&LockName> = sorted.iter().copied().take(sorted.len() / 2).collect();
    // A job with names of both halves goes into the second, and then all units with its names as
    // well.
    let (mut second, mut rest) = touching(batch, part.clone(), |name| !first.contains(name));
    loop {
        let taken = self::names(batch, &second);
        let (more, left) = touching(batch, rest, |name| taken.contains(name));
        rest = left;
        if more.is_empty() {
            return (!rest.is_empty()).then_some([rest, second]);
        }
        second.extend(more);
        second.sort_by_key(|unit| (unit.job, unit.ops.start));
    }
}

/// Records this error for all units, and answers the jobs that are done.
pub(crate) fn fail(batch: &mut [Job], part: &[Unit], error: &Error) {
    for (job, op) in positions(part) {
        if let Some(pending) = batch[job].ops.get_mut(op) {
            pending.result = Some(Err(error.clone()));
        }
    }
    finish(batch, part);
}

/// Answers the jobs that are done.
pub(crate) fn finish(batch: &mut [Job], part: &[Unit]) {
    let mut last = None;
    for unit in part {
        if last.replace(unit.job) != Some(unit.job) && batch[unit.job].is_done() {
            batch[unit.job].finish();
        }
    }
}

/// Moves the jobs of a part out of the batch.
pub(crate) fn take(batch: &mut [Job], part: &[Unit]) -> Vec<Job> {
    part.iter().map(|unit| batch[unit.job].take()).filter(|job| !job.ops.is_empty()).collect()
}

/// Returns how long to wait for the answer, if the batch contains renewals. Half of the time for which
/// their callers wait leaves time for a retry on another connection.
pub(crate) fn limit(batch: &[Job]) -> Option<Duration> {
    let ops = batch.iter().flat_map(|job| &job.ops);
    let limits = ops.filter_map(|pending| match pending.op {
        Op::Renew { lease, .. } => Some(answer_within(pending, lease)),
        _ => None,
    });
    Some((limits.min()? / 2).max(SHORTEST))
}

/// Returns the time for which the caller waits for the answer to a renewal. The lease can be much
/// longer, since it includes the lock-delay.
fn answer_within(pending: &PendingOp, lease: u64) -> Duration {
    pending.answer_within.unwrap_or(Duration::from_micros(lease / 3))
}

/// Returns how long an answer to these jobs is useful. A grant is useless after its lease, and the
/// caller of a renewal names a time.
pub(crate) fn useful_time<'a>(
    ops: impl Iterator<Item = &'a PendingOp>,
    longest: Duration,
) -> Duration {
    let lease = |pending: &PendingOp| match pending.op {
        Op::Acquire { lease, .. } | Op::Join { lease, .. } => Duration::from_micros(lease),
        Op::Renew { lease, .. } => answer_within(pending, lease).max(SHORTEST),
        _ => longest,
    };
    ops.map(lease).min().map_or(longest, |shortest| shortest.min(longest))
}

#[cfg(test)]
mod tests {
    use dlock_core::{ClaimId, Mode};

    use super::*;

    fn batch(jobs: &[(&str, bool)]) -> Vec<Job> {
        let op = Op::Renew {
            claim: ClaimId::from_bits(1),
            mode: Mode::Exclusive,
            lease: 6_000_000,
            is_last: false,
        };
        let pending = |name: &str| PendingOp::new(LockName::new(name).unwrap(), op.clone());
        let job = |&(names, together): &(&str, bool)| {
            Job::new(names.split(' ').map(pending).collect(), together).0
        };
        jobs.iter().map(job).collect()
    }

    #[test]
    fn renewals_are_split_and_joint_operations_are_not() {
        let batch = batch(&[("a b", true), ("c d e", false), ("a", true)]);
        let part = whole(&batch);
        assert_eq!(part.len(), 5);
        assert_eq!(limit(&batch), Some(Duration::from_secs(1)));
        let mut batch = batch;
        batch[1].ops[0].answer_within = Some(Duration::from_millis(500));
        assert_eq!(limit(&batch), Some(Duration::from_millis(250)));
        let useful = useful_time(batch.iter().flat_map(|job| &job.ops), Duration::from_secs(9));
        assert_eq!(useful, Duration::from_millis(500));
        let (locked, rest) = touching(&batch, part, |name| name.as_str() == "d");
        assert_eq!(names(&batch, &locked).len(), 1);
        assert_eq!(names(&batch, &rest).len(), 4);
    }

    #[test]
    fn halves_share_no_name_and_keep_the_order_of_each() {
        let batch = batch(&[("a", true), ("b d", true), ("c", true), ("a", true), ("b", true)]);
        let [one, other] = halves(&batch, &whole(&batch)).unwrap();
        let both = [names(&batch, &one), names(&batch, &other)];
        assert!(both[0].is_disjoint(&both[1]), "{both:?}");
        assert!(!one.is_empty() && !other.is_empty());
        for part in [&one, &other] {
            assert!(part.is_sorted_by_key(|unit| unit.job), "{part:?}");
        }
        assert_eq!(one.len() + other.len(), batch.len());
        assert_eq!(halves(&batch, &vec![Unit { job: 1, ops: 0..2 }]), None);
    }

    #[test]
    fn a_split_job_is_answered_when_all_of_it_is_done() {
        let pending =
            |name: &str| PendingOp::new(LockName::new(name).unwrap(), Op::Raise { above: 1 });
        let (job, mut answer) = Job::new(vec![pending("a"), pending("b")], false);
        let mut batch = vec![job];
        let part = whole(&batch);
        let error = Error::new(dlock_core::ErrorKind::Unavailable, "locked");
        fail(&mut batch, &part[..1], &error);
        assert!(answer.try_recv().is_err());
        fail(&mut batch, &part[1..], &error);
        assert_eq!(answer.try_recv().unwrap().len(), 2);
    }
}
