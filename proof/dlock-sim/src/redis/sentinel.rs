//! A master with two replicas, and three sentinels that replace it.
//!
//! After each write, a replica gets a copy of the master's data over the network of the servers: it lags
//! and is cut off. Sentinels promote a replica if the master is down or cut off
//! for long, or if they are asked to. The old master serves its clients until it is told to follow the
//! new one. So until then there are two masters.
//!
//! The clocks of the servers agree, since a replica gets the ends of leases by the clock of its master.

use std::{
    cell::{RefCell, RefMut},
    collections::BTreeMap,
    ops::Range,
    rc::Rc,
};

use async_trait::async_trait;
use dlock_core::{DynBackend, Error};

use super::{
    Redis, client, map,
    peers::Snapshot,
    resp::{Bytes, Value, next_command},
    store::{connect, url},
};
use crate::{
    faults::{CLOCK_BACK, CLOCK_FORWARD, CLOCK_RATE, EMPTIED, Kind, Micros},
    network::AGAIN,
    plan::Plan,
    random::Rng,
    world::{Held, Loss, Server, Store, World},
};

/// The servers, and then the sentinels.
const ADDRESSES: [&str; 6] = [
    "10.0.0.1:6379",
    "10.0.0.2:6379",
    "10.0.0.3:6379",
    "10.0.0.1:26379",
    "10.0.0.2:26379",
    "10.0.0.3:26379",
];
/// The number of servers, and of sentinels.
const SERVERS: usize = 3;

const ASKED: &str = "a failover is asked for";
const APART: &str = "a server is cut off from the others";
const LAGS: &str = "a replica lags";

/// The longest time in which a message usually travels to a client.
const CLOSE: Micros = 5_000;
/// How long a master is away before the sentinels replace it.
const DOWN_AFTER: Micros = 300_000;
/// For how long a replica lags, and by how much.
const LAGGING: Micros = 3_000_000;
const LAG: Range<Micros> = 20_000..2_000_000;
/// The longest time in which servers and sentinels learn of a failover.
const SPREADS: Micros = 2_000_000;

/// The store.
#[derive(Debug)]
pub(crate) struct SentinelStore;

#[async_trait]
impl Store for SentinelStore {
    fn name(&self) -> &'static str {
        "sentinel"
    }

    fn addresses(&self) -> &'static [&'static str] {
        &ADDRESSES
    }

    fn can_have(&self, kind: Kind) -> bool {
        ![CLOCK_BACK, CLOCK_FORWARD, CLOCK_RATE, EMPTIED].contains(&kind)
    }

    fn own_faults(&self) -> &'static [&'static str] {
        &[ASKED, APART, LAGS]
    }

    fn draw(&self, plan: &mut Plan, _: &mut Rng) {
        // Grants take two round trips, one after the other, and the shortest lease is 100 ms.
        let usual = &mut plan.latency.usual;
        *usual = usual.start.min(CLOSE / 2)..usual.end.min(CLOSE);
        plan.server_rates = vec![plan.server_rates[0]; ADDRESSES.len()];
        let hosts = ["10.0.0.1", "10.0.0.2", "10.0.0.3/mymaster"];
        plan.url = url("redis+sentinel", &hosts, plan);
        plan.url += &format!("&dlock.durability={}", durability(plan.seed));
    }

    fn servers(&self, plan: &Plan, _: &mut World) -> Vec<Rc<RefCell<dyn Server>>> {
        let servers = Servers::new(plan);
        let nodes = (0..SERVERS).map(|at| -> Rc<RefCell<dyn Server>> {
            Rc::new(RefCell::new(PeerServer { servers: servers.clone(), at }))
        });
        let sentinels = (0..SERVERS).map(|at| -> Rc<RefCell<dyn Server>> {
            let (servers, received) = (servers.clone(), BTreeMap::new());
            Rc::new(RefCell::new(Sentinel { servers, at, received }))
        });
        nodes.chain(sentinels).collect()
    }

    async fn connect(&self, _: usize, plan: &Plan) -> Result<DynBackend, Error> {
        connect(&plan.url).await
    }
}

/// On how many replicas a grant has to be.
fn durability(seed: u64) -> usize {
    Rng::new(seed, "durability").pick(&[0, 1, 2, 2])
}

/// How long a message between two servers travels. They are closer to each other than to clients.
fn hop(world: &mut World) -> Micros {
    world.rng.within(100..1_500)
}

/// A server, as its master and its replicas see it.
struct Peer {
    redis: Redis,
    /// The server whose replica it is.
    follows: Option<usize>,
    /// The number of its connection to that server. Bytes of an earlier one have no effect.
    link: u64,
    /// It is sent what its master writes.
    attached: bool,
    /// It has received a copy of the data of its master.
    synced: bool,
    /// When the last copy of the data arrives.
    arrives: Micros,
    /// It is cut off from the other servers and the sentinels until then.
    apart_until: Micros,
    /// Copies take longer by this time, until then.
    lag: (Micros, Micros),
    /// When it ends a wait for replicas, by its clock.
    alarm: u64,
}

/// The view of one sentinel.
#[derive(Clone, Copy, Debug)]
struct View {
    epoch: u64,
    master: usize,
    /// The master before, while it leads the failover.
    before: usize,
}

struct Group {
    peers: Vec<Peer>,
    views: Vec<View>,
    master: usize,
    /// On how many replicas a grant has to be.
    durability: usize,
    /// The last write that was on so many.
    counted: u64,
    lease: Micros,
    doubt: Option<Doubt>,
    /// Until then, by the clock of the servers, claims that were released may be in the store.
    unsettled_until: u64,
}

/// A failover after which grants count that the new master does not have: it lacked them when it was
/// promoted, or the old master goes on.
#[derive(Debug)]
struct Doubt {
    old: usize,
    since: Micros,
    /// These grants, each with the end of its lease, counted from the failover.
    grants: Vec<Held>,
}

/// All servers and the views of the sentinels. Events of the world share it.
#[derive(Clone)]
struct Servers(Rc<RefCell<Group>>);

impl Servers {
    fn new(plan: &Plan) -> Self {
        let peers = (0..SERVERS).map(|at| Peer {
            redis: Redis::new(plan.seed.wrapping_add(at as u64)),
            follows: (at != 0).then_some(0),
            link: 0,
            attached: at != 0,
            synced: at != 0,
            arrives: 0,
            apart_until: 0,
            lag: (0, 0),
            alarm: 0,
        });
        let mut group = Group {
            peers: peers.collect(),
            views: vec![View { epoch: 0, master: 0, before: 0 }; SERVERS],
            master: 0,
            durability: durability(plan.seed),
            counted: 0,
            lease: plan.longest_hold(),
            doubt: None,
            unsettled_until: 0,
        };
        for replica in 1..SERVERS {
            group.peers[replica].redis.demote();
            group.peers[0].redis.acknowledged(replica, 0, 0);
        }
        Self(Rc::new(RefCell::new(group)))
    }

    fn group(&self) -> RefMut<'_, Group> {
        self.0.borrow_mut()
    }

    /// Sends what a server has answered, and replicates what it has written.
    fn answer(&self, at: usize, answers: Vec<(u64, Vec<u8>)>, world: &mut World) {
        for (connection, bytes) in answers {
            world.answer(connection, bytes);
        }
        let mut group = self.group();
        group.collect(world);
        if let Some(snapshot) = group.peers[at].redis.unsent() {
            for replica in 0..SERVERS {
                let peer = &group.peers[replica];
                if peer.follows == Some(at) && peer.attached {
                    let (snapshot, link) = (snapshot.clone(), peer.link);
                    let (arrives, servers) = (group.arrival(at, replica, world), self.clone());
                    group.peers[replica].arrives = arrives;
                    world.after(arrives - world.now, move |world| {
                        world.when_not_busy(replica, move |world| {
                            servers.load(replica, link, snapshot, world);
                        });
                    });
                }
            }
        }
        // A wait for replicas ends by itself.
        let peer = &mut group.peers[at];
        if let Some(until) = peer.redis.waits_until().filter(|until| *until != peer.alarm) {
            peer.alarm = until;
            let servers = self.clone();
            let left = until.saturating_sub(world.hosts[at].clock.at(world.now));
            world.after(left + 1, move |world| {
                world.when_not_busy(at, move |world| servers.resume(at, world));
            });
        }
    }

    fn resume(&self, at: usize, world: &mut World) {
        let clock = world.hosts[at].clock.at(world.now);
        let answers = {
            let peer = &mut self.group().peers[at];
            peer.alarm = 0;
            peer.redis.resume(clock)
        };
        self.answer(at, answers, world);
    }

    /// A replica tells its master how much it has.
    fn acknowledge(&self, replica: usize, group: RefMut<'_, Group>, world: &mut World) {
        let peer = &group.peers[replica];
        let Some(master) = peer.follows else { return };
        let (link, offset) = (peer.link, peer.redis.offset());
        let apart = peer.apart_until.max(group.peers[master].apart_until);
        let (arrives, servers) = (world.now + hop(world), self.clone());
        world.after(arrives.max(apart) - world.now, move |world| {
            world.when_not_busy(master, move |world| {
                let clock = world.hosts[master].clock.at(world.now);
                let answers = {
                    let mut group = servers.group();
                    if group.peers[replica].link != link {
                        return;
                    }
                    let answers = group.peers[master].redis.acknowledged(replica, offset, clock);
                    group.count(master);
                    answers
                };
                servers.answer(master, answers, world);
            });
        });
    }

    /// A server follows this master from now on.
    fn follow(&self, at: usize, master: usize, world: &mut World) {
        {
            let mut group = self.group();
            group.detach(at);
            let peer = &mut group.peers[at];
            (peer.follows, peer.synced) = (Some(master), false);
            if !peer.redis.is_replica() {
                peer.redis.demote();
                // The sentinels end the connections of clients.
                world.disconnect(at);
            }
        }
        world.say(format_args!("server {at} follows server {master}"));
        self.synchronise(at, world);
    }

    /// Copies the data of the master to a replica, as soon as that is possible.
    fn synchronise(&self, at: usize, world: &mut World) {
        let (link, servers) = (self.group().peers[at].link, self.clone());
        world.after(AGAIN / 10, move |world| {
            let mut group = servers.group();
            let Some(master) = group.peers[at].follows.filter(|_| group.peers[at].link == link)
            else {
                return;
            };
            let is_there = group.is_there(at, world) && group.is_there(master, world);
            if !is_there || group.peers[master].redis.is_replica() {
                drop(group);
                return world.after(AGAIN, move |world| {
                    if servers.group().peers[at].link == link {
                        servers.synchronise(at, world);
                    }
                });
            }
            let snapshot = group.peers[master].redis.snapshot();
            group.peers[at].attached = true;
            group.peers[at].arrives = world.now;
            let arrives = group.arrival(master, at, world);
            group.peers[at].arrives = arrives;
            drop(group);
            world.after(arrives - world.now, move |world| servers.load(at, link, snapshot, world));
        });
    }

    fn load(&self, at: usize, link: u64, snapshot: Snapshot, world: &mut World) {
        let mut group = self.group();
        let peer = &mut group.peers[at];
        if peer.link == link {
            peer.redis.load(snapshot);
            peer.synced = true;
            self.acknowledge(at, group, world);
        }
    }

    /// A server has restarted, which has ended its connections to the others.
    fn reconnect(&self, at: usize, world: &mut World) {
        for replica in 0..SERVERS {
            let mut group = self.group();
            let master = group.peers[replica].follows;
            if master == Some(at) || replica == at && master.is_some() {
                group.detach(replica);
                drop(group);
                self.synchronise(replica, world);
            }
        }
        self.watch(at, world);
    }

    /// Injects a fault of the server or sentinel with this number.
    fn inject(&self, at: usize, fault: &str, time: Micros, world: &mut World) -> bool {
        match fault {
            ASKED => self.fail_over(at, world),
            APART => {
                let peer = &mut self.group().peers[at];
                peer.apart_until = peer.apart_until.max(world.until(time));
                self.watch(at, world);
                true
            }
            LAGS => {
                let mut group = self.group();
                let until = world.until(LAGGING);
                let peer = &mut group.peers[at];
                peer.lag = (world.rng.within(LAG), until);
                peer.attached
            }
            _ => false,
        }
    }

    /// The sentinels look at a server that may be away.
    fn watch(&self, at: usize, world: &mut World) {
        let (servers, preferred) = (self.clone(), world.rng.below(SERVERS as u64));
        let preferred = usize::try_from(preferred).unwrap_or(0);
        world.after(DOWN_AFTER, move |world| servers.check(at, preferred, world));
    }

    /// The sentinels replace the master if it is still away.
    fn check(&self, master: usize, preferred: usize, world: &mut World) {
        let is_away = {
            let group = self.group();
            group.master == master && !group.is_there(master, world)
        };
        if is_away && !self.fail_over(preferred, world) {
            let servers = self.clone();
            world.after(AGAIN, move |world| servers.check(master, preferred, world));
        }
    }

    /// The sentinels promote this replica, or the one that has most.
    fn fail_over(&self, preferred: usize, world: &mut World) -> bool {
        let mut group = self.group();
        let old = group.master;
        if !group.is_settled() {
            return false;
        }
        let is_fit =
            |at: &usize| *at != old && group.peers[*at].synced && group.is_there(*at, world);
        let fit = Vec::from_iter((0..SERVERS).filter(is_fit));
        let most = || fit.iter().copied().max_by_key(|at| group.peers[*at].redis.offset());
        let preferred = fit.contains(&preferred).then_some(preferred);
        let Some(new) = preferred.or_else(most) else { return false };
        group.count(old);
        let has = group.peers[new].redis.offset();
        let lacks = std::mem::replace(&mut group.counted, has) > has;
        group.detach(new);
        group.peers[new].follows = None;
        group.peers[new].redis.promote(world.rng.any());
        group.master = new;
        if lacks || group.can_count(old) {
            group.doubt = Some(Doubt { old, since: world.now, grants: Vec::new() });
            group.collect(world);
        }
        group.unsettled_until = Micros::MAX;
        world.say(format_args!("server {new} is promoted, lacks: {lacks}, {:?}", group.doubt));
        self.spread(old, new, group, world);
        true
    }

    /// Sentinels and servers learn of a failover, each at a time of its own.
    fn spread(&self, old: usize, new: usize, mut group: RefMut<'_, Group>, world: &mut World) {
        let epoch = 1 + group.views.iter().map(|view| view.epoch).max().unwrap_or(0);
        let leader = usize::try_from(world.rng.below(SERVERS as u64)).unwrap_or(0);
        group.views[leader] = View { epoch, master: new, before: old };
        drop(group);
        for at in 0..SERVERS {
            let (servers, time) = (self.clone(), world.rng.within(1_000..SPREADS));
            world.after(time, move |_| {
                let view = View { epoch, master: new, before: new };
                let mut group = servers.group();
                if group.views[at].epoch <= epoch {
                    group.views[at] = view;
                }
            });
            if at != new {
                let (servers, time) = (self.clone(), world.rng.within(1_000..SPREADS));
                world.after(time, move |world| {
                    servers.tell(at, new, world);
                });
            }
        }
    }

    /// The sentinels tell a server to follow the new master, as soon as they reach it.
    fn tell(&self, at: usize, master: usize, world: &mut World) {
        let servers = self.clone();
        if !self.group().is_there(at, world) {
            return world.after(AGAIN, move |world| servers.tell(at, master, world));
        }
        self.group().collect(world);
        self.follow(at, master, world);
        let mut group = self.group();
        if group.is_settled() {
            group.unsettled_until = world.hosts[at].clock.at(world.now) + 2 * group.lease;
        }
        // No further write on the old master counts.
        let is_over = group.doubt.as_ref().is_some_and(|doubt| !group.can_count(doubt.old));
        if is_over && let Some(Doubt { since, grants, .. }) = group.doubt.take() {
            world.is_split |= !grants.is_empty();
            world.losses.push(Loss { at: since, grants, is_guarded: false });
        }
    }
}

impl Group {
    /// Returns when a copy of the data arrives. Copies do not overtake each other.
    fn arrival(&self, from: usize, to: usize, world: &mut World) -> Micros {
        let apart_until = self.peers[from].apart_until.max(self.peers[to].apart_until);
        let peer = &self.peers[to];
        let (lag, until) = peer.lag;
        let lag = if world.now < until { lag } else { 0 };
        (world.now + hop(world) + lag).max(apart_until).max(peer.arrives)
    }

    /// Returns whether the last failover is over.
    fn is_settled(&self) -> bool {
        let others = self.peers.iter().enumerate().filter(|(at, _)| *at != self.master);
        others.map(|(_, peer)| peer.follows).all(|follows| follows == Some(self.master))
    }

    /// Returns whether the sentinels and the other servers reach a server.
    fn is_there(&self, at: usize, world: &World) -> bool {
        self.peers[at].apart_until <= world.now && world.hosts[at].down_until <= world.now
    }

    /// Notes what counts on this server, if it is the master.
    fn count(&mut self, at: usize) {
        if self.master == at {
            self.counted = self.counted.max(self.peers[at].redis.counts(self.durability));
        }
    }

    /// Adds what the old master has granted, and the new one does not have.
    fn collect(&mut self, world: &World) {
        let Some(doubt) = &mut self.doubt else { return };
        let clock = world.hosts[doubt.old].clock.at(world.now);
        let kept = Server::held(&mut self.peers[self.master].redis, clock);
        for mut grant in Server::held(&mut self.peers[doubt.old].redis, clock) {
            if kept.iter().any(|other| other.is(&grant) && other.remaining >= grant.remaining) {
                continue;
            }
            grant.remaining += world.now - doubt.since;
            match doubt.grants.iter_mut().find(|known| known.is(&grant)) {
                Some(known) => {
                    known.remaining = known.remaining.max(grant.remaining);
                    known.tokens.1 = known.tokens.1.max(grant.tokens.1);
                }
                None => doubt.grants.push(grant),
            }
        }
    }

    /// Returns whether a write on a master that was replaced may count.
    fn can_count(&self, old: usize) -> bool {
        let replicas = self.peers.iter().filter(|peer| peer.follows == Some(old)).count();
        !self.peers[old].redis.is_replica() && replicas >= self.durability
    }

    /// The connection of a replica to its master is lost.
    fn detach(&mut self, at: usize) {
        if let Some(master) = self.peers[at].follows {
            self.peers[master].redis.forget_replica(at);
        }
        let peer = &mut self.peers[at];
        (peer.link, peer.attached) = (peer.link + 1, false);
    }
}

/// A server as its clients see it.
struct PeerServer {
    servers: Servers,
    at: usize,
}

impl Server for PeerServer {
    fn receive(&mut self, world: &mut World, connection: u64, bytes: &[u8]) {
        let clock = world.hosts[self.at].clock.at(world.now);
        let answers = self.servers.group().peers[self.at].redis.receive(connection, bytes, clock);
        self.servers.answer(self.at, answers, world);
    }

    fn closed(&mut self, connection: u64) {
        self.servers.group().peers[self.at].redis.closed(connection);
    }

    fn restart(&mut self, world: &mut World, keeps_data: bool) {
        self.servers.group().peers[self.at].redis.restart(world.rng.any(), keeps_data);
        self.servers.reconnect(self.at, world);
    }

    fn inject(&mut self, world: &mut World, fault: &str, time: Micros) -> bool {
        self.servers.inject(self.at, fault, time, world)
    }

    fn forget_cache(&mut self) {
        self.servers.group().peers[self.at].redis.forget_cache();
    }

    fn left(&mut self, clock: Micros) -> Vec<String> {
        let mut group = self.servers.group();
        let is_settled = group.master == self.at && clock >= group.unsettled_until;
        if is_settled { group.peers[self.at].redis.left(clock) } else { Vec::new() }
    }

    fn held(&mut self, clock: Micros) -> Vec<Held> {
        let mut group = self.servers.group();
        let unsettled_until = group.unsettled_until;
        let redis = &mut group.peers[self.at].redis;
        if redis.is_replica() {
            return Vec::new();
        }
        let mut held = Server::held(redis, clock);
        if clock < unsettled_until {
            held.iter_mut().for_each(|grant| grant.process = None);
        }
        held
    }
}

struct Sentinel {
    servers: Servers,
    at: usize,
    received: BTreeMap<u64, Bytes>,
}

impl Sentinel {
    fn execute(&self, words: &[Bytes]) -> Value {
        let upper = |at: usize| words.get(at).map(|word| word.to_ascii_uppercase());
        let view = self.servers.group().views[self.at];
        let parts = |at: usize| ADDRESSES[at].split_once(':').unwrap_or(("", ""));
        match (upper(0).as_deref(), upper(1).as_deref()) {
            (Some(b"HELLO"), _) => map(&[("proto", "3")]),
            (Some(b"CLIENT"), Some(_)) => client(words),
            (Some(b"SENTINEL"), Some(b"MASTER")) => {
                // The sentinel that leads a failover shows the old master until its end.
                let (host, port) = parts(view.before);
                let epoch = view.epoch.to_string();
                map(&[("ip", host), ("port", port), ("config-epoch", epoch.as_str())])
            }
            (Some(b"SENTINEL"), Some(b"GET-MASTER-ADDR-BY-NAME")) => {
                let (host, port) = parts(view.master);
                Value::Array(vec![Value::text(host), Value::text(port)])
            }
            _ => Value::error("ERR unknown command"),
        }
    }
}

impl Server for Sentinel {
    fn receive(&mut self, world: &mut World, connection: u64, bytes: &[u8]) {
        let mut received = self.received.remove(&connection).unwrap_or_default();
        received.extend_from_slice(bytes);
        let mut answers = Vec::new();
        while let Some(words) = next_command(&mut received) {
            self.execute(&words).write(&mut answers);
        }
        self.received.insert(connection, received);
        world.answer(connection, answers);
    }

    fn closed(&mut self, connection: u64) {
        self.received.remove(&connection);
    }

    fn restart(&mut self, _: &mut World, _: bool) {
        self.received.clear();
    }

    fn inject(&mut self, world: &mut World, fault: &str, time: Micros) -> bool {
        self.servers.inject(self.at, fault, time, world)
    }
}
