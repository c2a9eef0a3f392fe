//! Three masters of a cluster, whose slots move.
//!
//! A slot moves as `redis-cli` moves it: both nodes are told, the keys move one by one, the new owner
//! is told, then the old one, and at last the third. The clocks of the nodes agree, since waiters and
//! shared holders have the ends of their leases as times of the clock.

use std::{cell::RefCell, rc::Rc};

use async_trait::async_trait;
use dlock_core::{DynBackend, Error};

use super::{
    Redis,
    slots::Slots,
    store::{connect, held_in, url},
};
use crate::{
    faults::{CLOCK_BACK, CLOCK_FORWARD, CLOCK_RATE, EMPTIED, Kind, Micros},
    network::AGAIN,
    plan::Plan,
    random::Rng,
    world::{Held, Server, Store, World},
};

const ADDRESSES: [&str; 3] = ["10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379"];

const MOVES: &str = "a slot moves";
/// The longest time between two steps of a move.
const STEP: Micros = 5_000;

/// The store.
#[derive(Debug)]
pub(crate) struct ClusterStore;

#[async_trait]
impl Store for ClusterStore {
    fn name(&self) -> &'static str {
        "cluster"
    }

    fn addresses(&self) -> &'static [&'static str] {
        &ADDRESSES
    }

    fn can_have(&self, kind: Kind) -> bool {
        ![CLOCK_BACK, CLOCK_FORWARD, CLOCK_RATE, EMPTIED].contains(&kind)
    }

    fn own_faults(&self) -> &'static [&'static str] {
        &[MOVES]
    }

    fn draw(&self, plan: &mut Plan, _: &mut Rng) {
        plan.server_rates = vec![plan.server_rates[0]; ADDRESSES.len()];
        plan.url = url("redis+cluster", &ADDRESSES, plan);
    }

    fn servers(&self, plan: &Plan, _: &mut World) -> Vec<Rc<RefCell<dyn Server>>> {
        let slots = Rc::new(RefCell::new(Slots::of(&ADDRESSES)));
        let nodes = [0, 1, 2].map(|at| {
            let redis = Redis::new(plan.seed.wrapping_add(at as u64));
            Rc::new(RefCell::new(redis.in_cluster(at, &slots)))
        });
        NODES.set(Some(Nodes { nodes: nodes.clone(), slots }));
        nodes.map(|node| -> Rc<RefCell<dyn Server>> { node }).into()
    }

    async fn connect(&self, _: usize, plan: &Plan) -> Result<DynBackend, Error> {
        connect(&plan.url).await
    }

    fn inject(&self, _: &str, host: usize, _: Micros, world: &mut World) -> bool {
        nodes().begin(host, world)
    }

    /// Those of all nodes, since a move may have torn the keys of a name apart.
    fn held(&self, world: &World) -> Vec<Held> {
        let clock = world.hosts[0].clock.at(world.now);
        let nodes = nodes().nodes;
        let lines = nodes.iter().flat_map(|node| node.borrow_mut().lines(clock));
        held_in(&Vec::from_iter(lines), clock)
    }
}

thread_local! {
    static NODES: RefCell<Option<Nodes>> = const { RefCell::new(None) };
}

/// Returns the nodes of the world.
fn nodes() -> Nodes {
    NODES.with_borrow(Clone::clone).expect("the world has nodes")
}

/// All nodes, and what they know of the slots.
#[derive(Clone)]
struct Nodes {
    nodes: [Rc<RefCell<Redis>>; 3],
    slots: Rc<RefCell<Slots>>,
}

impl Nodes {
    /// Begins to move a bucket with keys to this node. Returns false if there is none.
    fn begin(&self, to: usize, world: &mut World) -> bool {
        let slots = self.slots.borrow();
        let from = (to + 1 + usize::from(world.rng.chance(500_000))) % ADDRESSES.len();
        let mut buckets = self.nodes[from].borrow().buckets();
        buckets.retain(|bucket| {
            slots.owners[from][*bucket] == from && !slots.moving.contains_key(bucket)
        });
        drop(slots);
        let buckets = Vec::from_iter(buckets);
        if buckets.is_empty() {
            return false;
        }
        let bucket = world.rng.pick(&buckets);
        self.slots.borrow_mut().moving.insert(bucket, (from, to));
        world.say(format_args!("bucket {bucket} moves from node {from} to node {to}"));
        self.later(bucket, (from, to), world);
        true
    }

    fn later(&self, bucket: usize, way: (usize, usize), world: &mut World) {
        let (nodes, pause) = (self.clone(), world.rng.within(100..STEP));
        world.after(pause, move |world| nodes.step(bucket, way, world));
    }

    /// The next step of a move.
    fn step(&self, bucket: usize, way: (usize, usize), world: &mut World) {
        let (from, to) = way;
        if [from, to].iter().any(|at| world.hosts[*at].down_until > world.now) {
            let nodes = self.clone();
            return world.after(AGAIN, move |world| nodes.step(bucket, way, world));
        }
        let moves =
            self.nodes[from].borrow_mut().move_key(bucket, &mut self.nodes[to].borrow_mut());
        let mut slots = self.slots.borrow_mut();
        if moves {
            drop(slots);
        } else if slots.owners[to][bucket] != to {
            slots.owners[to][bucket] = to;
        } else if slots.owners[from][bucket] != to {
            slots.owners[from][bucket] = to;
            slots.moving.remove(&bucket);
            drop(slots);
            let ended = self.nodes[from].borrow_mut().give_up(bucket);
            ended.into_iter().for_each(|(connection, bytes)| world.answer(connection, bytes));
        } else {
            return slots.owners.iter_mut().for_each(|owners| owners[bucket] = to);
        }
        self.later(bucket, way, world);
    }
}
