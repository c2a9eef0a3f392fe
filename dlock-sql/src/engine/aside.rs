//! Jobs that wait for a row which another transaction keeps locked.
//!
//! A statement that meets such a row waits for it, and all that came with it or came later waits as
//! well. So a worker that has met one sets the jobs of its name aside, does the others, and looks now
//! and then whether the row is free, which waits for nobody.

use std::{collections::VecDeque, time::Duration};

use dlock_core::{Certainty, Clock, Error, Instant, LockName};
use hashbrown::HashMap;

use super::{conn::Conn, job::Job, row::Wanted};

/// The first pause between two looks, and the longest.
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(crate) struct Aside {
    /// In the order in which they came.
    jobs: VecDeque<Job>,
    rows: HashMap<LockName, Locked>,
    /// When to look again, and the pause after that.
    due: Instant,
    pause: Duration,
}

#[derive(Debug)]
struct Locked {
    /// What a statement that has met it was told.
    error: Error,
    /// Of a row that can't be seen, since who makes it has not committed: when to try again.
    again: Option<Instant>,
}

impl Aside {
    pub(crate) fn new() -> Self {
        let due = Instant::from_nanos(0);
        Self { jobs: VecDeque::new(), rows: HashMap::new(), due, pause: SHORTEST }
    }

    /// Whether no job waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// How long until it is time to look; `None` while nothing waits and no row is known to be locked.
    pub(crate) fn due_in(&self) -> Option<Duration> {
        (!self.rows.is_empty() || !self.jobs.is_empty()).then(|| self.due.since(Clock::Boot.now()))
    }

    pub(crate) fn is_locked(&self, name: &LockName) -> bool {
        !self.rows.is_empty() && self.rows.contains_key(name)
    }

    /// Why the first of these names that is locked can't be written.
    pub(crate) fn why<'a>(&self, mut names: impl Iterator<Item = &'a LockName>) -> Option<Error> {
        names.find_map(|name| self.rows.get(name)).map(|row| row.error.clone())
    }

    /// Rows are locked, as a statement has found that failed so.
    pub(crate) fn lock(&mut self, names: Vec<LockName>, error: &Error) {
        for name in names {
            self.rows.insert(name, Locked { error: error.clone(), again: None });
        }
        self.look_soon();
    }

    /// These names made a statement fail that took so long, and their rows are not there.
    pub(crate) fn lock_unseen(
        &mut self,
        names: impl IntoIterator<Item = LockName>,
        error: &Error,
        took: Duration,
    ) {
        // Most of the time is for the others.
        let again = Clock::Boot.now().saturating_add((2 * took).max(LONGEST));
        for name in names {
            self.rows.insert(name, Locked { error: error.clone(), again: Some(again) });
        }
        self.look_soon();
    }

    fn look_soon(&mut self) {
        self.pause = SHORTEST;
        self.due = Clock::Boot.now().saturating_add(SHORTEST);
    }

    /// They wait for rows that are locked.
    pub(crate) fn push(&mut self, jobs: impl IntoIterator<Item = Job>) {
        self.jobs.extend(jobs);
    }

    /// Looks which of the rows are free by now.
    pub(crate) async fn look<C: Conn>(&mut self, conn: &mut C) {
        let now = Clock::Boot.now();
        self.rows.retain(|_, row| row.again.is_none_or(|again| now < again));
        let seen = self.rows.iter().filter(|(_, row)| row.again.is_none());
        let names: Vec<LockName> = seen.map(|(name, _)| name.clone()).collect();
        if let Some(locked) = locked(conn, &names.iter().collect::<Vec<_>>()).await {
            self.rows.retain(|name, row| row.again.is_some() || locked.contains(name));
        }
        self.pause = (self.pause * 2).min(LONGEST);
        self.due = Clock::Boot.now().saturating_add(self.pause);
    }

    /// Takes out the jobs whose rows are free, and fails those whose time is up: `late` says which.
    pub(crate) fn ready(
        &mut self,
        late: impl Fn(&Job) -> bool,
        mut fail: impl FnMut(Job, &Error),
    ) -> Vec<Job> {
        let mut ready = Vec::new();
        for job in std::mem::take(&mut self.jobs) {
            match self.why(job.asks.iter().map(|ask| &ask.name)) {
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

/// Which of these names have rows that another transaction keeps locked. `None` if the database does
/// not tell.
pub(crate) async fn locked<C: Conn>(conn: &mut C, names: &[&LockName]) -> Option<Vec<LockName>> {
    if names.is_empty() {
        return Some(Vec::new());
    }
    let unlocked = conn.unlocked(names).await.ok()?;
    let unlocked: std::collections::HashSet<&str> = unlocked.iter().map(String::as_str).collect();
    // The others are locked, or not there.
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
