//! Jobs that wait for a row that another transaction has locked.
//!
//! A statement waits for such a row, and all operations in it or behind it wait as well. So a
//! worker that meets such a row sets the jobs of its name aside, serves the others, and checks
//! regularly, without waiting, whether the row is free. dlock itself never keeps a row locked: each
//! of its statements commits.

use std::{collections::VecDeque, time::Duration};

use dlock_core::{Backoff, Certainty, Clock, Error, Instant, LockName};

use super::{HashMap, conn::Conn, job::Job, row::Wanted};

/// The longest pause between two checks.
const LONGEST: Duration = Duration::from_millis(200);
/// The pauses between checks.
const PAUSES: Backoff = Backoff::between(Duration::from_millis(10), LONGEST);

#[derive(Debug)]
pub(crate) struct LockedRows {
    /// In the order in which they came.
    jobs: VecDeque<Job>,
    rows: HashMap<LockName, LockedRow>,
    /// When to check again, and the pauses after that check.
    due: Instant,
    backoff: Backoff,
}

#[derive(Debug)]
struct LockedRow {
    /// The error of the statement that met the locked row.
    error: Error,
    /// When to retry. Only for a row that is not visible because its insert has not committed.
    again: Option<Instant>,
}

impl LockedRows {
    pub(crate) fn new() -> Self {
        let due = Instant::from_nanos(0);
        Self { jobs: VecDeque::new(), rows: HashMap::new(), due, backoff: PAUSES }
    }

    /// Returns whether no job waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Returns the time until the next check. `None` while no job waits and no row is known to be
    /// locked.
    pub(crate) fn due_in(&self) -> Option<Duration> {
        (!self.rows.is_empty() || !self.jobs.is_empty()).then(|| self.due.since(Clock::Boot.now()))
    }

    pub(crate) fn is_locked(&self, name: &LockName) -> bool {
        !self.rows.is_empty() && self.rows.contains_key(name)
    }

    /// Returns the error of the first of these names whose row is locked.
    pub(crate) fn why<'a>(&self, mut names: impl Iterator<Item = &'a LockName>) -> Option<Error> {
        names.find_map(|name| self.rows.get(name)).map(|row| row.error.clone())
    }

    /// Records rows that are locked, and the error of the statement that met them.
    pub(crate) fn lock(&mut self, names: Vec<LockName>, error: &Error) {
        for name in names {
            self.rows.insert(name, LockedRow { error: error.clone(), again: None });
        }
        self.check_soon();
    }

    /// Records names without visible rows. A statement with them took this long, and failed with
    /// this error.
    pub(crate) fn lock_unseen(
        &mut self,
        names: impl IntoIterator<Item = LockName>,
        error: &Error,
        took: Duration,
    ) {
        // Most of the time belongs to other names.
        let again = Clock::Boot.now().saturating_add((2 * took).max(LONGEST));
        for name in names {
            self.rows.insert(name, LockedRow { error: error.clone(), again: Some(again) });
        }
        self.check_soon();
    }

    fn check_soon(&mut self) {
        self.backoff = PAUSES;
        self.due = Clock::Boot.now().saturating_add(self.backoff.pause());
    }

    /// Adds jobs that wait for locked rows.
    pub(crate) fn push(&mut self, jobs: impl IntoIterator<Item = Job>) {
        self.jobs.extend(jobs);
    }

    /// Checks which of the rows are free by now.
    pub(crate) async fn check<C: Conn>(&mut self, conn: &mut C) {
        let now = Clock::Boot.now();
        self.rows.retain(|_, row| row.again.is_none_or(|again| now < again));
        let seen = self.rows.iter().filter(|(_, row)| row.again.is_none());
        let names: Vec<LockName> = seen.map(|(name, _)| name.clone()).collect();
        if let Some(locked) = locked(conn, &names.iter().collect::<Vec<_>>()).await {
            self.rows.retain(|name, row| row.again.is_some() || locked.contains(name));
        }
        self.due = Clock::Boot.now().saturating_add(self.backoff.pause());
    }

    /// Takes out the jobs whose rows are free, and fails those whose time is up.
    pub(crate) fn ready(
        &mut self,
        late: impl Fn(&Job) -> bool,
        mut fail: impl FnMut(Job, &Error),
    ) -> Vec<Job> {
        let mut ready = Vec::new();
        for job in std::mem::take(&mut self.jobs) {
            match self.why(job.ops.iter().map(|pending| &pending.name)) {
                _ if job.is_moot() => {}
                None => ready.push(job),
                Some(error) if late(&job) => {
                    let unsure = if job.in_doubt { Certainty::Unknown } else { error.certainty() };
                    fail(job, &error.with_certainty(unsure));
                }
                Some(_) => self.jobs.push_back(job),
            }
        }
        ready
    }
}

/// Returns the names whose rows another transaction has locked. `None` if the database does not
/// answer.
pub(crate) async fn locked<C: Conn>(conn: &mut C, names: &[&LockName]) -> Option<Vec<LockName>> {
    if names.is_empty() {
        return Some(Vec::new());
    }
    let unlocked = conn.unlocked(names).await.ok()?;
    let unlocked: std::collections::HashSet<&str> = unlocked.iter().map(String::as_str).collect();
    // The other rows are locked or do not exist. A read, which ignores locks, distinguishes the
    // two.
    let wanted: Vec<Wanted> = names
        .iter()
        .filter(|name| !unlocked.contains(name.as_str()))
        .map(|name| Wanted { name: (*name).clone(), known: None })
        .collect();
    if wanted.is_empty() {
        return Some(Vec::new());
    }
    let seen = conn.read(&wanted).await.ok()?;
    let there = wanted.into_iter().zip(seen.rows).filter(|(_, row)| row.is_some());
    Some(there.map(|(wanted, _)| wanted.name).collect())
}
