//! A PostgreSQL server in memory: the table of locks, and the statements of dlock's engine.
//!
//! A statement is a name and its arguments, those of the file of the same name in
//! `dlock-sql/src/postgres`. Each is a transaction of its own, at the level `READ COMMITTED`. It has
//! one time and one snapshot, both of its beginning. It locks the rows that it writes in the order of
//! their names, waits for the transactions that have locked them, and then changes the rows as they
//! are by then. Others see the changes once it has committed. A commit is safe from a crash when its
//! record is on the disk, and with it the records of all earlier commits.
//!
//! The user sets the clock, and determines when a transaction commits. The tests compare all this
//! with a real server.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

use super::wire::{ERROR, NOTIFICATION, NULL};

/// How many commits a standby may lack.
const BEHIND: usize = 64;
/// The session of a program that is not dlock.
pub(crate) const OTHER_PROGRAM: u64 = u64::MAX;

/// The codes of a statement that waits for a row, or takes, for too long.
pub(crate) const LOCK_TIMEOUT: &str = "55P03";
pub(crate) const STATEMENT_TIMEOUT: &str = "57014";

type Cells = Vec<String>;

/// A row of the table, without its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) base: i64,
    pub(crate) snap: String,
    pub(crate) log: String,
}

/// What the user of the server has to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// To send a message to a session.
    Send(u64, Vec<String>),
    /// To [commit](Postgres::commit) a transaction: with `syncs` when its record is on the disk, else
    /// at once.
    Commit { session: u64, transaction: u64, syncs: bool },
    /// To [end](Postgres::roll_back) a transaction that has waited for a row for too long.
    Wait { session: u64, transaction: u64, wait: u64 },
}

#[derive(Debug, Default)]
pub(crate) struct Postgres {
    /// The name of a deliberate mistake.
    mistake: Option<&'static str>,
    /// What has been committed.
    rows: BTreeMap<String, Row>,
    running: BTreeMap<u64, Transaction>,
    /// The sessions that wait for a row, in the order in which they began to.
    waiting: Vec<u64>,
    channels: BTreeMap<String, BTreeSet<u64>>,
    /// The last commits. Those that are not safe from a crash are at the end.
    commits: Vec<Commit>,
    /// The number of transactions and of waits.
    begun: u64,
}

/// A statement that writes, from its beginning to its commit.
#[derive(Debug, Default)]
struct Transaction {
    number: u64,
    now: i64,
    syncs: bool,
    /// What it still has to write, from the last to the first, each with the row of its snapshot.
    writes: Vec<(Write, Option<Row>)>,
    locked: BTreeSet<String>,
    changes: Vec<(String, Option<Row>)>,
    notifications: BTreeSet<(String, String)>,
    answer: Vec<Cells>,
    /// The current wait for a row.
    wait: u64,
}

/// A commit that may be lost.
#[derive(Debug)]
struct Commit {
    transaction: u64,
    is_safe: bool,
    /// The rows before it.
    before: Vec<(String, Option<Row>)>,
}

/// The arguments of `apply_one.sql`, or those of one row of `apply_many.sql`.
#[derive(Debug)]
struct Write {
    name: String,
    seen: i64,
    cut: i64,
    snap: String,
    op: String,
    time: i64,
    /// The base and the length of the snapshot that the client knows.
    known: i64,
    length: usize,
    /// Whether these are the arguments of `apply_one.sql`.
    is_only: bool,
}

impl Write {
    fn read(words: &mut Words, is_only: bool) -> Self {
        let mut write = Self {
            name: words.text(),
            seen: words.number(),
            cut: words.number(),
            snap: words.text(),
            op: words.text(),
            time: words.number(),
            known: words.number(),
            length: 0,
            is_only,
        };
        let length = if is_only { write.cut } else { words.number() };
        write.length = usize::try_from(length).unwrap_or(usize::MAX);
        write
    }

    /// Returns the row after the statement.
    fn apply(
        &self,
        snapshot: Option<&Row>,
        current: Option<&Row>,
        now: i64,
        mistake: Option<&'static str>,
    ) -> Row {
        let added = format!("{} {now};", self.op);
        let current = if mistake == Some("lost-update") { snapshot } else { current };
        let Some(row) = current else {
            return Row { base: now, snap: String::new(), log: added };
        };
        let end = format!(" {};", self.time);
        let is_seen = |row: &&Row| {
            let is_as_seen = left(&row.log, self.cut).ends_with(&end);
            row.base == self.seen && (is_as_seen || mistake == Some("unchecked-fold"))
        };
        let seen = match self.seen {
            0 => 0,
            _ => snapshot.filter(is_seen).map_or(0, |row| row.base),
        };
        let is_whole = |text: &str| text.is_empty() || text.ends_with(';');
        let is_read = row.base == seen || self.knows(row);
        let is_readable = is_whole(&row.log)
            && (is_read || ["", "v1 "].contains(&left(&row.snap, 3)) && is_whole(&row.snap));
        let mut row = row.clone();
        if row.base == seen {
            let rest = row.log[left(&row.log, self.cut).len()..].to_owned();
            row = Row { base: now.max(row.base + 1), snap: self.snap.clone(), log: rest };
        }
        if is_readable {
            row.log += &added;
        }
        row
    }

    /// Returns whether the client knows the snapshot of a row, which is then not read.
    fn knows(&self, row: &Row) -> bool {
        self.known == row.base && self.length == row.snap.len()
    }

    fn answer(&self, row: &Row) -> Cells {
        let name = (!self.is_only).then(|| self.name.clone());
        name.into_iter().chain(row.cells(self.knows(row))).collect()
    }
}

impl Row {
    /// Returns base, snap and log. The snap is empty if the client knows it.
    fn cells(&self, is_known: bool) -> [String; 3] {
        let snap = if is_known { String::new() } else { self.snap.clone() };
        [self.base.to_string(), snap, self.log.clone()]
    }
}

/// The first characters of a text.
fn left(text: &str, characters: i64) -> &str {
    let characters = usize::try_from(characters).unwrap_or(0);
    text.char_indices().nth(characters).map_or(text, |(at, _)| &text[..at])
}

/// The words of a statement.
struct Words(std::vec::IntoIter<String>);

impl Words {
    fn text(&mut self) -> String {
        self.0.next().expect("a statement has all its arguments")
    }

    fn number(&mut self) -> i64 {
        self.text().parse().expect("an argument is a number")
    }

    /// Reads the rest, which consists of groups of words.
    fn groups<T>(mut self, read: impl Fn(&mut Self) -> T) -> Vec<T> {
        let mut groups = Vec::new();
        while !self.0.as_slice().is_empty() {
            groups.push(read(&mut self));
        }
        groups
    }
}

impl Postgres {
    pub(crate) fn new(mistake: Option<&'static str>) -> Self {
        Self { mistake, ..Self::default() }
    }

    /// Begins a statement at this time of the server's clock, in microseconds.
    pub(crate) fn begin(&mut self, session: u64, statement: Vec<String>, now: u64) -> Vec<Step> {
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let mut words = Words(statement.into_iter());
        self.begun += 1;
        let mut transaction = Transaction { number: self.begun, now, ..Transaction::default() };
        match words.text().as_str() {
            "greeting" | "is_durable" => return answer(session, vec![vec!["true".to_owned()]]),
            "listen" => {
                self.channels.entry(words.text()).or_default().insert(session);
                return answer(session, Vec::new());
            }
            "read" => return answer(session, self.read(words, now)),
            "page" => return answer(session, self.page(words, now)),
            name @ ("apply_one" | "apply_one_without_sync") => {
                transaction.syncs = name == "apply_one";
                transaction.writes.push((Write::read(&mut words, true), None));
            }
            "apply_many" => {
                transaction.syncs = true;
                let writes = words.groups(|words| Write::read(words, false));
                transaction.writes = writes.into_iter().map(|write| (write, None)).collect();
            }
            "delete" => {
                self.delete(words, &mut transaction);
                transaction.syncs = !transaction.changes.is_empty();
            }
            "unlocked" => {
                let names = words.groups(Words::text).into_iter();
                let names = names.filter(|name| self.rows.contains_key(name));
                transaction.locked = names.filter(|name| !self.is_locked(name)).collect();
                let names = transaction.locked.iter();
                transaction.answer = names.map(|name| vec![name.clone()]).collect();
                // A lock is a record as well.
                transaction.syncs = !transaction.locked.is_empty();
            }
            "notify" => {
                let pairs = words.groups(|words| (words.text(), words.text()));
                transaction.notifications = pairs.into_iter().collect();
            }
            other => panic!("the engine has no statement {other}"),
        }
        transaction.writes.sort_by(|(a, _), (b, _)| b.name.cmp(&a.name));
        for (write, snapshot) in &mut transaction.writes {
            *snapshot = self.rows.get(&write.name).cloned();
        }
        transaction.syncs &= self.mistake != Some("commit-not-awaited");
        self.running.insert(session, transaction);
        vec![self.go_on(session)]
    }

    /// Lets a transaction write as far as it can.
    fn go_on(&mut self, session: u64) -> Step {
        let mut transaction = self.running.remove(&session).expect("the transaction runs");
        let number = transaction.number;
        while let Some((write, snapshot)) = transaction.writes.pop() {
            if self.is_locked(&write.name) || self.is_wanted(&write.name) {
                transaction.writes.push((write, snapshot));
                self.begun += 1;
                transaction.wait = self.begun;
                self.waiting.push(session);
                self.running.insert(session, transaction);
                return Step::Wait { session, transaction: number, wait: self.begun };
            }
            let current = self.rows.get(&write.name);
            let row = write.apply(snapshot.as_ref(), current, transaction.now, self.mistake);
            transaction.answer.push(write.answer(&row));
            transaction.locked.insert(write.name.clone());
            transaction.changes.push((write.name, Some(row)));
        }
        let syncs = transaction.syncs;
        self.running.insert(session, transaction);
        Step::Commit { session, transaction: number, syncs }
    }

    fn is_locked(&self, name: &str) -> bool {
        self.running.values().any(|transaction| transaction.locked.contains(name))
    }

    /// Returns whether a transaction waits for this row.
    fn is_wanted(&self, name: &str) -> bool {
        let waiting = self.waiting.iter().filter_map(|session| self.running.get(session));
        waiting.filter_map(|one| one.writes.last()).any(|(write, _)| write.name == name)
    }

    /// Lets the transactions go on whose rows are free by now.
    fn resume(&mut self) -> Vec<Step> {
        let mut steps = Vec::new();
        for session in mem::take(&mut self.waiting) {
            let wanted = self.running.get(&session).and_then(|one| one.writes.last());
            let Some(name) = wanted.map(|(write, _)| write.name.clone()) else { continue };
            match self.is_locked(&name) || self.is_wanted(&name) {
                true => self.waiting.push(session),
                false => steps.push(self.go_on(session)),
            }
        }
        steps
    }

    /// Commits a transaction, unless it has ended. Its record is on the disk if it
    /// [waits](Step::Commit) for that.
    pub(crate) fn commit(&mut self, session: u64, transaction: u64) -> Vec<Step> {
        let Some(ended) = self.end(session, transaction, None) else { return Vec::new() };
        let Transaction { syncs, changes, notifications, answer: rows, .. } = ended;
        let change = |(name, row): (String, Option<Row>)| {
            let before = match row {
                Some(row) => self.rows.insert(name.clone(), row),
                None => self.rows.remove(&name),
            };
            (name, before)
        };
        let before = changes.into_iter().map(change).collect();
        self.commits.push(Commit { transaction, is_safe: false, before });
        if syncs {
            self.flush(transaction);
        }
        self.commits.drain(..self.commits.len().saturating_sub(BEHIND));
        let mut steps = Vec::new();
        for (channel, text) in notifications {
            let message = vec![NOTIFICATION.to_owned(), text];
            let sessions = self.channels.get(&channel).into_iter().flatten();
            steps.extend(sessions.map(|to| Step::Send(*to, message.clone())));
        }
        steps.extend(answer(session, rows));
        steps.extend(self.resume());
        steps
    }

    /// The record of this transaction is on the disk, if it has committed.
    pub(crate) fn flush(&mut self, transaction: u64) {
        if let Some(last) = self.commits.iter().position(|one| one.transaction == transaction) {
            self.commits[..=last].iter_mut().for_each(|commit| commit.is_safe = true);
        }
    }

    /// Ends a transaction with this error, unless it has ended. With a `wait`, only if this wait of it
    /// has not ended.
    pub(crate) fn roll_back(
        &mut self,
        session: u64,
        transaction: u64,
        wait: Option<u64>,
        code: &str,
    ) -> Vec<Step> {
        if self.end(session, transaction, wait).is_none() {
            return Vec::new();
        }
        let error = vec![ERROR.to_owned(), code.to_owned()];
        let mut steps = vec![Step::Send(session, error)];
        steps.extend(self.resume());
        steps
    }

    fn end(&mut self, session: u64, transaction: u64, wait: Option<u64>) -> Option<Transaction> {
        let running = self.running.get(&session)?;
        let waits = |wait| wait == running.wait && self.waiting.contains(&session);
        if running.number != transaction || !wait.is_none_or(waits) {
            return None;
        }
        self.waiting.retain(|waiting| *waiting != session);
        self.running.remove(&session)
    }

    /// Returns the rows that the transaction of a session has written.
    pub(crate) fn written(&self, session: u64) -> Vec<String> {
        let changes = self.running.get(&session).map(|one| one.changes.iter());
        changes.into_iter().flatten().map(|(name, _)| name.clone()).collect()
    }

    /// Returns the transaction of a session, if one runs, and whether it waits for a row.
    pub(crate) fn transaction(&self, session: u64) -> Option<(u64, bool)> {
        let running = self.running.get(&session)?;
        Some((running.number, self.waiting.contains(&session)))
    }

    /// Another program locks all rows that are not locked. Returns its transaction, which may be
    /// rolled back, or nothing if it has locked none.
    pub(crate) fn lock_all(&mut self) -> Option<u64> {
        let names = self.rows.keys().filter(|name| !self.is_locked(name));
        let locked: BTreeSet<String> = names.cloned().collect();
        if locked.is_empty() || self.running.contains_key(&OTHER_PROGRAM) {
            return None;
        }
        self.begun += 1;
        let transaction = Transaction { number: self.begun, locked, ..Transaction::default() };
        self.running.insert(OTHER_PROGRAM, transaction);
        Some(self.begun)
    }

    /// A session has ended. Its statement goes on.
    pub(crate) fn closed(&mut self, session: u64) {
        self.channels.retain(|_, sessions| {
            sessions.remove(&session);
            !sessions.is_empty()
        });
    }

    /// The server crashes, and starts again or a standby takes over. `choose` returns a number up to
    /// the given one. Returns the rows that have lost commits, as they were before.
    pub(crate) fn crash(
        &mut self,
        standby: bool,
        mut choose: impl FnMut(usize) -> usize,
    ) -> BTreeMap<String, Option<Row>> {
        if !standby {
            // The records of some of the transactions that are about to commit are on the disk.
            let ready = self.running.iter().filter(|(_, one)| one.writes.is_empty());
            let mut ready: Vec<_> = ready.map(|(session, one)| (one.number, *session)).collect();
            ready.retain(|(_, session)| *session != OTHER_PROGRAM);
            ready.sort_unstable();
            for (transaction, session) in ready.iter().take(choose(ready.len())) {
                self.commit(*session, *transaction);
            }
        }
        self.running.clear();
        self.waiting.clear();
        self.channels.clear();
        let at_risk = self.commits.iter().rev().take_while(|one| standby || !one.is_safe).count();
        let mut lost = BTreeMap::new();
        let first = self.commits.len() - choose(at_risk);
        for (name, before) in self.commits.drain(first..).rev().flat_map(|commit| commit.before) {
            let now = match before {
                Some(row) => self.rows.insert(name.clone(), row),
                None => self.rows.remove(&name),
            };
            lost.entry(name).or_insert(now);
        }
        self.commits.clear();
        lost
    }

    /// Returns the rows that have been committed.
    pub(crate) const fn rows(&self) -> &BTreeMap<String, Row> {
        &self.rows
    }

    fn read(&self, words: Words, now: i64) -> Vec<Cells> {
        let wanted = words.groups(|words| (words.text(), words.number()));
        let read = |(at, (name, known)): (usize, (String, i64))| {
            let found = self.rows.get(&name).map(|row| row.cells(row.base == known));
            let found = found.unwrap_or_else(|| [NULL; 3].map(str::to_owned));
            [at.to_string(), now.to_string()].into_iter().chain(found).collect()
        };
        wanted.into_iter().enumerate().map(read).collect()
    }

    fn page(&self, mut words: Words, now: i64) -> Vec<Cells> {
        let (after, old, most, skip) =
            (words.text(), words.number(), words.number(), words.number());
        let [most, skip] = [most, skip].map(|number| usize::try_from(number).unwrap_or(0));
        let rows = self.rows.iter().filter(|(name, _)| **name > after).skip(skip).take(most);
        let page = |(name, row): (&String, &Row)| {
            let [base, snap, log] = row.cells(false);
            let [snap, log] = match row.base <= now - old {
                true => [snap, log],
                false => [NULL, NULL].map(str::to_owned),
            };
            vec![name.clone(), now.to_string(), base, snap, log]
        };
        rows.map(page).collect()
    }

    fn delete(&self, words: Words, transaction: &mut Transaction) {
        for (name, base, length) in
            words.groups(|words| (words.text(), words.number(), words.number()))
        {
            let is_same = self.rows.get(&name).is_some_and(|row| {
                row.base == base && i64::try_from(row.log.chars().count()) == Ok(length)
            });
            if is_same && !self.is_locked(&name) && transaction.locked.insert(name.clone()) {
                transaction.changes.push((name, None));
            }
        }
    }
}

fn answer(session: u64, rows: Vec<Cells>) -> Vec<Step> {
    let head = ["rows".to_owned(), rows.len().to_string()];
    vec![Step::Send(session, head.into_iter().chain(rows.into_iter().flatten()).collect())]
}
