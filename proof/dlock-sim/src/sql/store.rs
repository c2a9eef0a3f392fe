//! The PostgreSQL server as a store of the simulation.
//!
//! A commit takes the time of the disk. Statements fail, answers are lost, and notifications are
//! lost, repeated or late. A restart is a crash: what did not wait for the disk may be lost. If the
//! server loses data, a standby takes over that lacks the last commits.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    rc::{Rc, Weak},
};

use async_trait::async_trait;
use dlock_core::{
    ClaimId, DynBackend, Error,
    machine::{Machine, text},
};

use super::{
    server::{LOCK_TIMEOUT, OTHER_PROGRAM, Postgres, Row, STATEMENT_TIMEOUT, Step},
    wire,
};
use crate::{
    faults::{self, Fault, Kind, MessageFaults, Micros},
    machine::{held, left},
    plan::Plan,
    random::Rng,
    world::{Held, Loss, Server, Store, World},
};

/// The index of the host.
const HOST: usize = 0;
const ADDRESS: &str = "10.0.0.1:5432";

const ROWS_LOCKED: &str = "another program locks rows";
const SLOW_DISK: &str = "the disk is slow";
const REFUSED: Kind = "a statement is refused";
const ANSWER_LOST: Kind = "an answer is lost after the commit";
const COMMIT_LOST: Kind = "a commit is lost";

/// A step of the clock that is larger than what its rate explains.
const STEP: Micros = 1_000;
/// The codes of a serialization failure and of a deadlock.
const REFUSALS: [&str; 2] = ["40001", "40P01"];
/// How long the record of a commit stays in memory that did not wait for the disk.
const UNWRITTEN: Range<Micros> = 1_000..600_000;

#[derive(Debug)]
pub(crate) struct SqlStore;

#[async_trait]
impl Store for SqlStore {
    fn name(&self) -> &'static str {
        "sql"
    }

    fn addresses(&self) -> &'static [&'static str] {
        &[ADDRESS]
    }

    fn can_have(&self, kind: Kind) -> bool {
        kind != faults::CACHE_FORGOTTEN
    }

    fn own_faults(&self) -> &'static [&'static str] {
        &[ROWS_LOCKED, SLOW_DISK]
    }

    fn draw(&self, plan: &mut Plan, rng: &mut Rng) {
        plan.messages = MessageFaults::draw(rng);
        let (connections, timeout) = (rng.pick(&[1, 2, 4]), plan.response_timeout / 1000);
        // A row remembers its last token if the clock steps back.
        let is_behind = |fault: &Fault| [faults::CLOCK_BACK, faults::EMPTIED].contains(&fault.kind);
        let retention = match plan.faults.iter().any(is_behind) {
            true => "1day",
            false => rng.pick(&["2s", "1day"]),
        };
        plan.url = format!(
            "postgres://dlock@{ADDRESS}/dlock?sslmode=disable&dlock.connections={connections}\
             &dlock.response_timeout={timeout}ms&dlock.retention={retention}"
        );
    }

    fn servers(&self, plan: &Plan, _: &mut World) -> Vec<Rc<RefCell<dyn Server>>> {
        let flush: Micros = Rng::new(plan.seed, "disk").pick(&[200, 2_000, 10_000]);
        // Many clients may wait for a row in turn, each for a tenth of the timeout.
        let flush = flush.min(plan.response_timeout / 200);
        vec![Rc::new_cyclic(|me| {
            RefCell::new(SqlServer {
                me: Weak::clone(me),
                postgres: Postgres::new(plan.mutant),
                received: BTreeMap::new(),
                limits: BTreeMap::new(),
                flush: flush / 2..flush,
                slow_until: 0,
                returned: BTreeSet::new(),
                begun: BTreeMap::new(),
            })
        })]
    }

    async fn connect(&self, _: usize, plan: &Plan) -> Result<DynBackend, Error> {
        dlock_sql::sim::open(&plan.url, ADDRESS).await
    }
}

struct SqlServer {
    me: Weak<RefCell<Self>>,
    postgres: Postgres,
    /// The bytes of each session that are no statement yet.
    received: BTreeMap<u64, Vec<u8>>,
    /// How long each session waits for a row, and for a statement.
    limits: BTreeMap<u64, [Micros; 2]>,
    /// How long the disk takes.
    flush: Range<Micros>,
    /// It takes until then.
    slow_until: Micros,
    /// The claims that are in the table again, since their end was lost.
    returned: BTreeSet<ClaimId>,
    /// When the last statement of each session began: in the world, and by the server's clock.
    begun: BTreeMap<u64, [Micros; 2]>,
}

impl SqlServer {
    /// Does this after a time, as soon as the server is not busy.
    fn later(
        &self,
        world: &mut World,
        time: Micros,
        work: impl FnOnce(&mut Self, &mut World) + 'static,
    ) {
        let me = Weak::clone(&self.me);
        world.after(time, move |world| {
            world.when_not_busy(HOST, move |world| {
                if let Some(me) = me.upgrade() {
                    work(&mut me.borrow_mut(), world);
                }
            });
        });
    }

    fn begin(&mut self, world: &mut World, session: u64, statement: Vec<String>) {
        if statement[0] == "greeting" {
            let limit = |at: usize| statement[at].parse().expect("a greeting has its limits");
            self.limits.insert(session, [1, 2].map(limit));
        }
        let clock = world.hosts[HOST].clock.at(world.now);
        self.begun.insert(session, [world.now, clock]);
        let steps = self.postgres.begin(session, statement, clock);
        if let [Step::Wait { transaction, .. }] = *steps {
            let [_, limit] = self.limits_of(session);
            self.later(world, limit, move |server, world| {
                if server.postgres.transaction(session) == Some((transaction, true)) {
                    server.roll_back(world, session, transaction, None, STATEMENT_TIMEOUT);
                }
            });
        }
        self.follow(world, steps);
    }

    fn limits_of(&self, session: u64) -> [Micros; 2] {
        *self.limits.get(&session).expect("a session begins with its greeting")
    }

    fn follow(&mut self, world: &mut World, steps: Vec<Step>) {
        for step in steps {
            match step {
                Step::Send(session, words) => send(world, session, &words),
                Step::Commit { session, transaction, syncs: false } => {
                    self.commit(world, session, transaction);
                    let time = world.rng.within(UNWRITTEN);
                    self.later(world, time, move |server, _| server.postgres.flush(transaction));
                }
                Step::Commit { session, transaction, .. } => {
                    let slow = self.slow_until.saturating_sub(world.now);
                    let time = slow + world.rng.within(self.flush.clone());
                    self.later(world, time, move |server, world| {
                        server.commit(world, session, transaction);
                    });
                }
                Step::Wait { session, transaction, wait } => {
                    let [limit, _] = self.limits_of(session);
                    self.later(world, limit, move |server, world| {
                        server.roll_back(world, session, transaction, Some(wait), LOCK_TIMEOUT);
                    });
                }
            }
        }
    }

    /// Commits a transaction, unless it has ended.
    fn commit(&mut self, world: &mut World, session: u64, transaction: u64) {
        if self.postgres.transaction(session) != Some((transaction, false)) {
            return;
        }
        let fails = world.messages.lost;
        if world.happens(fails, REFUSED) {
            let code = world.rng.pick(&REFUSALS);
            return self.roll_back(world, session, transaction, None, code);
        }
        let names = self.postgres.written(session);
        let steps = self.postgres.commit(session, transaction);
        self.excuse(world, session, &names);
        if world.happens(fails, ANSWER_LOST) {
            self.closed(session);
            world.hang_up(session);
        }
        self.follow(world, steps);
    }

    /// If the clock was set forward during a statement, its grants end earlier than they were meant
    /// to.
    fn excuse(&self, world: &mut World, session: u64, names: &[String]) {
        let clock = world.hosts[HOST].clock.at(world.now);
        let [began, began_at] = self.begun.get(&session).copied().unwrap_or([world.now, clock]);
        let step = clock.saturating_sub(began_at).saturating_sub(world.now - began);
        // Less may be the rate of the clock.
        if step > STEP {
            let rows =
                names.iter().filter_map(|name| Some((name, self.postgres.rows().get(name)?)));
            let machines = rows.filter_map(|(name, row)| Some((name, machine(row).ok()?)));
            let grants = machines.flat_map(|(name, machine)| held(name, &machine, clock - step));
            world.losses.push(Loss { at: world.now, grants: grants.collect(), is_guarded: false });
        }
    }

    fn roll_back(
        &mut self,
        world: &mut World,
        session: u64,
        transaction: u64,
        wait: Option<u64>,
        code: &str,
    ) {
        let steps = self.postgres.roll_back(session, transaction, wait, code);
        self.follow(world, steps);
    }
}

impl Server for SqlServer {
    fn receive(&mut self, world: &mut World, connection: u64, bytes: &[u8]) {
        self.received.entry(connection).or_default().extend(bytes);
        while let Some(statement) = self.received.get_mut(&connection).and_then(wire::take) {
            self.begin(world, connection, statement);
        }
    }

    fn closed(&mut self, connection: u64) {
        // A statement that has begun goes on, with its limits.
        self.received.remove(&connection);
        self.postgres.closed(connection);
    }

    fn restart(&mut self, world: &mut World, keeps_data: bool) {
        let rng = &mut world.rng;
        let lost = self
            .postgres
            .crash(!keeps_data, |most| usize::try_from(rng.below(most as u64 + 1)).unwrap_or(0));
        self.received.clear();
        self.limits.clear();
        for (name, before) in lost {
            world.took(COMMIT_LOST);
            let after = self.postgres.rows().get(&name);
            world.say(format_args!("lost: {name} was {before:?} and is {after:?}"));
            let before = before.as_ref().map(claims).unwrap_or_default();
            let after = after.map(claims).unwrap_or_default();
            self.returned.extend(after.difference(&before));
        }
    }

    fn inject(&mut self, world: &mut World, fault: &str, time: Micros) -> bool {
        if fault == SLOW_DISK {
            self.slow_until = world.until(time);
            return true;
        }
        let Some(transaction) = self.postgres.lock_all() else { return false };
        self.later(world, time, move |server, world| {
            server.roll_back(world, OTHER_PROGRAM, transaction, None, "");
        });
        true
    }

    fn left(&mut self, clock: Micros) -> Vec<String> {
        let lines = self.postgres.rows().iter().flat_map(|(name, row)| match machine(row) {
            Ok(machine) => left(name, &machine, clock),
            Err(error) => vec![format!("{name}: {row:?} can't be read: {error}")],
        });
        let is_returned =
            |line: &String| self.returned.iter().any(|claim| line.contains(&claim.to_string()));
        lines.filter(|line| !is_returned(line)).collect()
    }

    fn held(&mut self, clock: Micros) -> Vec<Held> {
        let rows = self.postgres.rows().iter();
        let machines = rows.filter_map(|(name, row)| Some((name, machine(row).ok()?)));
        let of = |(name, machine): (&String, Machine)| {
            let mut grants = held(name, &machine, clock);
            let returned = self.returned.iter().filter_map(|claim| machine.grant_of(*claim));
            for token in returned.map(|grant| grant.token) {
                let of_it = grants.iter_mut().filter(|grant| grant.tokens.0 == token);
                of_it.for_each(|grant| grant.process = None);
            }
            grants
        };
        machines.flat_map(of).collect()
    }
}

/// Sends a message. A notification may be lost, late or repeated.
fn send(world: &mut World, session: u64, words: &[String]) {
    let message = wire::encoded(words);
    if words[0] != wire::NOTIFICATION {
        return world.answer(session, message);
    }
    let chances = world.messages.clone();
    if world.happens(chances.lost, faults::MESSAGE_LOST) {
        return;
    }
    if world.happens(chances.twice, faults::MESSAGE_TWICE) {
        world.answer(session, message.clone());
    }
    if world.happens(chances.late.0, faults::MESSAGE_LATE) {
        let time = world.rng.within(chances.late.1);
        return world.after(time, move |world| world.answer(session, message));
    }
    world.answer(session, message);
}

fn machine(row: &Row) -> Result<Machine, Error> {
    Ok(text::replay(&row.snap, &row.log)?.machine)
}

/// The claims in a row, at any time.
fn claims(row: &Row) -> BTreeSet<ClaimId> {
    let state = machine(row).map(|machine| machine.inspect(0)).unwrap_or_default();
    state.holders.iter().chain(&state.waiters).map(|claim| claim.claim).collect()
}
