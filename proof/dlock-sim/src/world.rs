//! Time, events and the log of one world. A thread has at most one.
//!
//! The world has one clock, in microseconds since it began. Events are due at a time of it; those of
//! one time happen in the order in which they were scheduled. Everything runs on one thread, so one
//! seed gives one history.

use std::{
    cell::RefCell,
    cmp::Ordering,
    collections::{BTreeMap, BinaryHeap, VecDeque},
    fmt::{self, Write as _},
};

use crate::{
    faults::{Effects, Micros},
    machine::{messages::Mail, server::MachineServer},
    network::{Connection, Latency, Link},
    random::Rng,
    redis::Redis,
};

/// What happens at a time.
pub(crate) type Event = Box<dyn FnOnce(&mut World)>;

/// A server process, with the data of its machine.
pub(crate) enum Server {
    Redis(Redis),
    Machine(MachineServer),
}

impl Server {
    /// Receives bytes of a connection at this time of the server's clock. Returns the bytes to send
    /// to connections, in order.
    pub(crate) fn receive(
        &mut self,
        connection: u64,
        bytes: &[u8],
        clock: Micros,
    ) -> Vec<(u64, Vec<u8>)> {
        match self {
            Self::Redis(redis) => redis.receive(connection, bytes, clock),
            Self::Machine(_) => Vec::new(),
        }
    }

    /// A connection has ended.
    pub(crate) fn closed(&mut self, connection: u64) {
        if let Self::Redis(redis) = self {
            redis.closed(connection);
        }
    }

    /// The process starts again, with its data or without.
    pub(crate) fn restart(&mut self, seed: u64, keeps_data: bool) {
        match self {
            Self::Redis(redis) => redis.restart(seed, keeps_data),
            Self::Machine(machine) => machine.restart(keeps_data),
        }
    }

    /// Scripts and other things that a server may drop at any time are gone.
    pub(crate) fn forget_cache(&mut self) {
        if let Self::Redis(redis) = self {
            redis.forget_scripts();
        }
    }

    /// Returns what clients left behind.
    pub(crate) fn left(&mut self, clock: Micros) -> Vec<String> {
        match self {
            Self::Redis(redis) => redis.left(clock),
            Self::Machine(machine) => machine.left(clock),
        }
    }
}

/// A server in the world.
pub(crate) struct Host {
    pub(crate) address: String,
    pub(crate) server: Server,
    pub(crate) clock: StoreClock,
    /// It executes nothing until then.
    pub(crate) busy_until: Micros,
    /// What has arrived while it was busy.
    pub(crate) waiting: VecDeque<Event>,
    /// It does not run until then.
    pub(crate) down_until: Micros,
}

impl Host {
    pub(crate) fn new(address: &str, server: Server) -> Self {
        Self {
            address: address.to_owned(),
            server,
            clock: StoreClock::new(),
            busy_until: 0,
            waiting: VecDeque::new(),
            down_until: 0,
        }
    }
}

/// The clock of a server: it runs at a rate of its own, and steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreClock {
    base: i128,
    since: Micros,
    ppm: i64,
}

impl StoreClock {
    /// A date of 2023, in microseconds.
    const EPOCH: i128 = 1_700_000_000_000_000;

    pub(crate) const fn new() -> Self {
        Self { base: Self::EPOCH, since: 0, ppm: 0 }
    }

    pub(crate) fn at(&self, now: Micros) -> Micros {
        u64::try_from(self.exact(now)).unwrap_or(0)
    }

    fn exact(&self, now: Micros) -> i128 {
        let passed = i128::from(now - self.since);
        self.base + passed + passed * i128::from(self.ppm) / 1_000_000
    }

    /// Steps by this number of microseconds.
    pub(crate) fn step(&mut self, now: Micros, by: i64) {
        (self.base, self.since) = (self.exact(now) + i128::from(by), now);
    }

    /// Runs at this rate from now on, in millionths above one.
    pub(crate) fn run_at(&mut self, now: Micros, ppm: i64) {
        (self.base, self.since, self.ppm) = (self.exact(now), now, ppm);
    }
}

/// One world.
pub(crate) struct World {
    pub(crate) now: Micros,
    pub(crate) rng: Rng,
    pub(crate) latency: Latency,
    pub(crate) links: BTreeMap<usize, Link>,
    pub(crate) hosts: Vec<Host>,
    pub(crate) connections: BTreeMap<u64, Connection>,
    pub(crate) opened: u64,
    pub(crate) mail: Mail,
    pub(crate) effects: Effects,
    queue: BinaryHeap<Due>,
    scheduled: u64,
    log: Log,
}

struct Due {
    at: Micros,
    number: u64,
    event: Event,
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap gives the greatest first, which is the one that is due first.
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Due {}

/// The text of all that happens, as a hash, and printed if wanted.
struct Log {
    hash: u64,
    prints: bool,
    line: String,
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

/// Uses the world of this thread.
pub(crate) fn with<T>(work: impl FnOnce(&mut World) -> T) -> T {
    WORLD.with_borrow_mut(|world| work(world.as_mut().expect("the thread has a world")))
}

/// Uses the world of this thread, if there is one and nobody uses it: for values that are dropped.
pub(crate) fn try_with(work: impl FnOnce(&mut World)) {
    let _ = WORLD.try_with(|world| {
        if let Ok(mut world) = world.try_borrow_mut()
            && let Some(world) = world.as_mut()
        {
            work(world);
        }
    });
}

/// Makes this the world of the thread.
pub(crate) fn begin(world: World) {
    WORLD.set(Some(world));
}

/// Returns the world of the thread, which has none afterwards.
pub(crate) fn end() -> World {
    WORLD.take().expect("the thread has a world")
}

/// Adds a line to the log of the world.
macro_rules! say {
    ($($what:tt)*) => { $crate::world::with(|world| world.say(format_args!($($what)*))) };
}
pub(crate) use say;

impl World {
    pub(crate) fn new(seed: u64, latency: Latency, prints: bool) -> Self {
        Self {
            now: 0,
            rng: Rng::new(seed, "network"),
            latency,
            links: BTreeMap::new(),
            hosts: Vec::new(),
            connections: BTreeMap::new(),
            opened: 0,
            mail: Mail::default(),
            effects: Effects::default(),
            queue: BinaryHeap::new(),
            scheduled: 0,
            log: Log { hash: 0xCBF2_9CE4_8422_2325, prints, line: String::new() },
        }
    }

    /// Schedules an event.
    pub(crate) fn after(&mut self, delay: Micros, event: impl FnOnce(&mut Self) + 'static) {
        self.scheduled += 1;
        let due = Due { at: self.now + delay, number: self.scheduled, event: Box::new(event) };
        self.queue.push(due);
    }

    /// Lets everything happen that is due at this time or earlier.
    pub(crate) fn advance(&mut self, to: Micros) {
        while self.queue.peek().is_some_and(|due| due.at <= to) {
            let Some(due) = self.queue.pop() else { break };
            self.now = due.at;
            (due.event)(self);
        }
        self.now = to;
    }

    pub(crate) fn say(&mut self, what: fmt::Arguments<'_>) {
        let log = &mut self.log;
        log.line.clear();
        let _ = writeln!(
            log.line,
            "{:>12.6} {what}",
            std::time::Duration::from_micros(self.now).as_secs_f64()
        );
        for byte in log.line.bytes() {
            log.hash = (log.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
        if log.prints {
            print!("{}", log.line);
        }
    }

    /// Returns the hash of all that has happened.
    pub(crate) fn hash(&self) -> u64 {
        self.log.hash
    }

    /// Returns whether the whole log is printed.
    pub(crate) fn prints(&self) -> bool {
        self.log.prints
    }

    /// Returns what clients left behind in the stores.
    pub(crate) fn left(&mut self) -> Vec<String> {
        let now = self.now;
        let left = self.hosts.iter_mut().map(|host| host.server.left(host.clock.at(now)));
        left.flatten().collect()
    }
}
