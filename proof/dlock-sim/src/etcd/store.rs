//! The cluster as a store of the simulation, and the faults of its members.

use std::{cell::RefCell, mem, rc::Rc, time::Duration};

use async_trait::async_trait;
use dlock_core::{DynBackend, Error};
use dlock_etcd::EtcdConfig;

use super::cluster::{ADDRESSES, Cluster};
use crate::{
    faults::{CLOCK_BACK, CLOCK_FORWARD, EMPTIED, Kind, Micros},
    plan::Plan,
    random::Rng,
    world::{Held, Host, Server, Store, World},
};

/// The interval at which the members work.
const TICK: Micros = 1000;
/// The longest time in which a message usually travels: the shortest lease is 100 ms.
const CLOSE: Micros = 15_000;
/// A new leader keeps a session for longer.
const NEW_LEADER: Duration = Duration::from_secs(4);
/// A member that was cut off for longer asks for an election when it comes back.
const DISTURBS: Micros = 1_000_000;
/// How long the process of a member that was removed goes on, at least.
const LINGERS: Micros = 500_000;

const CUT_OFF: &str = "a member is cut off from the others";
const STOPPED: &str = "a member is stopped";
const SLOW: &str = "a member applies changes late";
const ELECTED: &str = "another member is elected";
const REMOVED: &str = "a member is removed";
const DENIED: &str = "releases are refused";
const BEHIND: &str = "clients move to members that are behind";

thread_local! {
    static CLUSTER: RefCell<Option<Rc<RefCell<Cluster>>>> = const { RefCell::new(None) };
}

/// Returns the cluster of the world.
fn cluster() -> Rc<RefCell<Cluster>> {
    CLUSTER.with_borrow(Clone::clone).expect("the world has a cluster")
}

#[derive(Debug)]
pub(crate) struct EtcdStore;

#[async_trait]
impl Store for EtcdStore {
    fn name(&self) -> &'static str {
        "etcd"
    }

    fn addresses(&self) -> &'static [&'static str] {
        &ADDRESSES
    }

    fn can_have(&self, kind: Kind) -> bool {
        // A majority keeps the data, and leases do not depend on the time of day.
        ![EMPTIED, CLOCK_FORWARD, CLOCK_BACK].contains(&kind)
    }

    fn own_faults(&self) -> &'static [&'static str] {
        &[CUT_OFF, STOPPED, SLOW, ELECTED, REMOVED, DENIED, BEHIND]
    }

    fn draw(&self, plan: &mut Plan, rng: &mut Rng) {
        let session = rng.pick(&[2, 2, 3, 6, 10]);
        let members = ADDRESSES.join(",");
        plan.url = format!("etcd://{members}/sim?dlock.session_timeout={session}s");
        plan.session = Duration::from_secs(session) + NEW_LEADER;
        // The time between heartbeats, after which an answer is late.
        plan.response_timeout = session * 1_000_000 / 6;
        let usual = &mut plan.latency.usual;
        let most = usual.end.min(CLOSE);
        *usual = usual.start.min(most / 2)..most;
    }

    fn servers(&self, plan: &Plan, world: &mut World) -> Vec<Rc<RefCell<dyn Server>>> {
        CLUSTER.set(Some(Rc::new(RefCell::new(Cluster::new(plan, world.prints)))));
        world.after(TICK, work);
        let member = |at| -> Rc<RefCell<dyn Server>> { Rc::new(RefCell::new(MemberServer(at))) };
        (0..ADDRESSES.len()).map(member).collect()
    }

    async fn connect(&self, _: usize, plan: &Plan) -> Result<DynBackend, Error> {
        dlock_etcd::Etcd::connect(EtcdConfig::from_url(&plan.url)?).await
    }

    fn inject(&self, fault: &str, host: usize, time: Micros, world: &mut World) -> bool {
        let shared = cluster();
        let (mut cluster, until) = (shared.borrow_mut(), world.until(2 * time));
        // The faults of leaders show more.
        let host = cluster.leader().filter(|_| world.rng.chance(400_000)).unwrap_or(host);
        match fault {
            CUT_OFF => {
                cluster.cut_off(host, until);
                if time > DISTURBS && world.rng.chance(500_000) {
                    world.after(until - world.now, |_| self::cluster().borrow_mut().disturb());
                }
                true
            }
            STOPPED => {
                // Longer than sessions: only then does a former leader end their leases.
                world.host_is_busy(host, 4 * time);
                true
            }
            SLOW => {
                cluster.slow_down(host, time / 2, until);
                true
            }
            ELECTED => cluster.move_leader(host),
            REMOVED => {
                let is_removed = cluster.remove(host);
                if is_removed {
                    // Its process ends after a while. Then it joins the others again.
                    let ends = world.until(LINGERS + time / 2) - world.now;
                    world.after(ends, move |world| world.host_restarts(host, true, time));
                }
                is_removed
            }
            BEHIND => {
                let is_fast = |at: &usize| *at == host || Some(*at) == cluster.leader();
                let slow: Vec<_> = (0..ADDRESSES.len()).filter(|at| !is_fast(at)).collect();
                slow.iter().for_each(|at| cluster.slow_down(*at, time, until));
                let pause = world.until(time / 2) - world.now;
                world.after(pause, move |world| world.host_restarts(host, true, time / 2));
                !slow.is_empty()
            }
            _ => {
                cluster.deny(until);
                // It counts when a release is refused.
                false
            }
        }
    }

    fn left(&self, _: &World) -> Vec<String> {
        cluster().borrow().left()
    }

    fn held(&self, _: &World) -> Vec<Held> {
        cluster().borrow().held()
    }
}

/// Lets the members work from now on.
fn work(world: &mut World) {
    let shared = cluster();
    let mut cluster = shared.borrow_mut();
    let now = world.now;
    let state = |host: &Host| (host.clock.at(now), now < host.busy_until.max(host.down_until));
    let hosts: Vec<_> = world.hosts.iter().map(state).collect();
    let sent = cluster.tick(now, &hosts);
    for line in cluster.said.iter_mut().flat_map(mem::take) {
        world.say(format_args!("{line}"));
    }
    if mem::take(&mut cluster.has_denied) {
        world.took(DENIED);
    }
    drop(cluster);
    for (connection, bytes) in sent {
        world.answer(connection, bytes);
    }
    world.after(TICK, work);
}

/// A server process of the cluster.
struct MemberServer(usize);

impl Server for MemberServer {
    fn receive(&mut self, world: &mut World, connection: u64, bytes: &[u8]) {
        let sent = cluster().borrow_mut().receive(self.0, connection, bytes);
        for (to, answer) in sent {
            world.answer(to, answer);
        }
    }

    fn closed(&mut self, connection: u64) {
        cluster().borrow_mut().closed(connection);
    }

    fn restart(&mut self, _: &mut World, _: bool) {
        cluster().borrow_mut().restart(self.0);
    }

    fn forget_cache(&mut self) {
        cluster().borrow_mut().compact(self.0);
    }
}
