//! Time, events and the log of one world. A thread has at most one.
//!
//! The world has one clock, in microseconds since it began. Events are due at a time of it; those of
//! one time happen in the order in which they were scheduled. Everything runs on one thread, so one
//! seed gives one history.

use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    fmt,
    rc::Rc,
    time::Duration,
};

use async_trait::async_trait;
use dlock_core::{DynBackend, Error};

use crate::{
    faults::{Kind, Latency, MessageFaults, Micros},
    fnv,
    network::{Connection, Link},
    plan::Plan,
    random::Rng,
};

/// A kind of store, with its servers and its clients.
#[async_trait]
pub(crate) trait Store: fmt::Debug + Sync {
    /// The name, as in `--store NAME`.
    fn name(&self) -> &'static str;

    /// The addresses of its servers.
    fn addresses(&self) -> &'static [&'static str] {
        &["10.0.0.1:6379"]
    }

    /// Returns whether faults of this kind can take effect.
    fn can_have(&self, _: Kind) -> bool {
        true
    }

    /// The names of the faults that only this store has.
    fn own_faults(&self) -> &'static [&'static str] {
        &[]
    }

    /// Draws what only this store needs, such as [`Plan::url`]. All else has been drawn.
    fn draw(&self, plan: &mut Plan, rng: &mut Rng);

    /// Returns its servers, one for each address.
    fn servers(&self, plan: &Plan, world: &mut World) -> Vec<Rc<RefCell<dyn Server>>>;

    /// Connects a process. A transient failure is tried again.
    async fn connect(&self, process: usize, plan: &Plan) -> Result<DynBackend, Error>;

    /// Injects one of its [own faults](Self::own_faults), for this time if the fault lasts. Returns
    /// whether it took effect.
    fn inject(&self, fault: &str, host: usize, time: Micros, world: &mut World) -> bool {
        let server = Rc::clone(&world.hosts[host].server);
        server.borrow_mut().inject(world, fault, time)
    }

    /// Returns a line for each thing that clients left behind. Each claim is shown with its note.
    fn left(&self, world: &World) -> Vec<String> {
        let hosts = world.hosts.iter();
        hosts.flat_map(|host| host.server.borrow_mut().left(host.clock.at(world.now))).collect()
    }

    /// Returns the grants that are in the store now.
    fn held(&self, world: &World) -> Vec<Held> {
        let hosts = world.hosts.iter();
        hosts.flat_map(|host| host.server.borrow_mut().held(host.clock.at(world.now))).collect()
    }
}

/// A server process, with the data of its machine.
pub(crate) trait Server {
    /// Receives bytes of a connection. It answers with [`World::answer`], now or later.
    fn receive(&mut self, world: &mut World, connection: u64, bytes: &[u8]);

    /// A connection has ended.
    fn closed(&mut self, _connection: u64) {}

    /// The process starts again, with its data or without. Its ends of all connections are gone.
    fn restart(&mut self, world: &mut World, keeps_data: bool);

    /// Injects one of the store's own faults. Returns whether it took effect.
    fn inject(&mut self, _: &mut World, _fault: &str, _time: Micros) -> bool {
        false
    }

    /// Scripts and other things that a server may drop at any time are gone.
    fn forget_cache(&mut self) {}

    /// Returns a line for each thing that clients left behind, at this time of its clock. Each claim
    /// is shown with its note.
    fn left(&mut self, _clock: Micros) -> Vec<String> {
        Vec::new()
    }

    /// Returns the grants whose leases are not over at this time of its clock.
    fn held(&mut self, _clock: Micros) -> Vec<Held> {
        Vec::new()
    }
}

/// A grant in a store.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) name: String,
    /// The first and the last token of the grant. Local hand-off uses the later ones.
    pub(crate) tokens: (u64, u64),
    /// The time that is left of its lease, by the clock of the store.
    pub(crate) remaining: Micros,
    /// The process whose claim it is. `None` also if the end of the claim was lost.
    pub(crate) process: Option<usize>,
}

/// The notes of all claims of a process have this text, and then its number and a dot.
pub(crate) const NOTE: &str = "process-";

/// Returns the process whose note is in a text.
pub(crate) fn process_in(text: &str) -> Option<usize> {
    text.split_once(NOTE)?.1.split_once('.')?.0.parse().ok()
}

impl Held {
    /// Whether both are the same grant.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.name == other.name && self.tokens.0 == other.tokens.0
    }

    /// Whether this token is of the grant.
    pub(crate) fn has(&self, name: &str, token: u64) -> bool {
        self.name == name && (self.tokens.0..=self.tokens.1).contains(&token)
    }
}

/// What happens at a time.
pub(crate) type Event = Box<dyn FnOnce(&mut World)>;

/// A server in the world.
pub(crate) struct Host {
    pub(crate) address: String,
    pub(crate) server: Rc<RefCell<dyn Server>>,
    pub(crate) clock: ServerClock,
    /// It executes nothing until then.
    pub(crate) busy_until: Micros,
    /// What has arrived while it was busy.
    pub(crate) waiting: VecDeque<Event>,
    /// It does not run until then.
    pub(crate) down_until: Micros,
}

impl Host {
    pub(crate) fn new(address: &str, server: Rc<RefCell<dyn Server>>) -> Self {
        Self {
            address: address.to_owned(),
            server,
            clock: ServerClock::new(),
            busy_until: 0,
            waiting: VecDeque::new(),
            down_until: 0,
        }
    }
}

/// The clock of a server: it runs at a rate of its own, and steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerClock {
    base: i128,
    since: Micros,
    ppm: i64,
}

impl ServerClock {
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
    pub(crate) messages: MessageFaults,
    /// How often each kind of fault took effect.
    pub(crate) effects: BTreeMap<Kind, u64>,
    /// The losses of grants that nobody has looked at yet.
    pub(crate) losses: Vec<Loss>,
    /// When the last fault ends.
    pub(crate) storm: Micros,
    /// Two servers have granted the same locks, so tokens need not be in order.
    pub(crate) is_split: bool,
    pub(crate) store: &'static dyn Store,
    /// What happens later, by its time and its number.
    queue: BTreeMap<(Micros, u64), Event>,
    scheduled: u64,
    /// The hash of all that has happened.
    pub(crate) hash: u64,
    /// All that happens is printed.
    pub(crate) prints: bool,
}

/// Grants that the store has lost at a time, or whose leases it has cut.
#[derive(Clone, Debug)]
pub(crate) struct Loss {
    pub(crate) at: Micros,
    pub(crate) grants: Vec<Held>,
    /// The store grants nothing until their leases are over.
    pub(crate) is_guarded: bool,
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
    pub(crate) fn new(store: &'static dyn Store, plan: &Plan, prints: bool) -> Self {
        Self {
            now: 0,
            rng: Rng::new(plan.seed, "network"),
            latency: plan.latency.clone(),
            links: BTreeMap::new(),
            hosts: Vec::new(),
            connections: BTreeMap::new(),
            opened: 0,
            messages: plan.messages.clone(),
            effects: BTreeMap::new(),
            losses: Vec::new(),
            storm: plan.storm,
            is_split: false,
            store,
            queue: BTreeMap::new(),
            scheduled: 0,
            hash: 0xCBF2_9CE4_8422_2325,
            prints,
        }
    }

    /// Schedules an event.
    pub(crate) fn after(&mut self, delay: Micros, event: impl FnOnce(&mut Self) + 'static) {
        self.scheduled += 1;
        self.queue.insert((self.now + delay, self.scheduled), Box::new(event));
    }

    /// A fault of this kind has taken effect.
    pub(crate) fn took(&mut self, kind: Kind) {
        *self.effects.entry(kind).or_default() += 1;
    }

    /// Returns when a fault ends that would last for this time. None outlasts the storm.
    pub(crate) fn until(&self, time: Micros) -> Micros {
        (self.now + time).min(self.storm.max(self.now))
    }

    /// Lets everything happen that is due at this time or earlier.
    pub(crate) fn advance(&mut self, to: Micros) {
        while let Some(first) = self.queue.first_entry()
            && first.key().0 <= to
        {
            let ((at, _), event) = first.remove_entry();
            self.now = at;
            event(self);
        }
        self.now = to;
    }

    /// Does something to the store by which it may lose grants or cut their leases, and records which.
    pub(crate) fn losing(&mut self, is_guarded: bool, work: impl FnOnce(&mut Self)) {
        let before = self.held();
        work(self);
        let after = self.held();
        let is_kept = |grant: &Held| {
            after.iter().any(|other| other.is(grant) && other.remaining >= grant.remaining)
        };
        let grants = before.into_iter().filter(|grant| !is_kept(grant)).collect();
        self.losses.push(Loss { at: self.now, grants, is_guarded });
    }

    pub(crate) fn say(&mut self, what: fmt::Arguments<'_>) {
        let at = Duration::from_micros(self.now).as_secs_f64();
        let line = format!("{at:>12.6} {what}\n");
        self.hash = fnv(self.hash, line.as_bytes());
        if self.prints {
            print!("{line}");
        }
    }

    /// Returns a line for each thing that clients left behind. Each claim is shown with its note.
    pub(crate) fn left(&self) -> Vec<String> {
        self.store.left(self)
    }

    /// Returns the grants that are in the store now.
    pub(crate) fn held(&self) -> Vec<Held> {
        self.store.held(self)
    }
}
