//! Three masters that know nothing of each other, of which a majority decides.
//!
//! Nothing excuses two holders: a master that has lost its data does not vote before the restart guard
//! is over. Clocks do not step forward, since leases end by the clocks of the masters.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

use async_trait::async_trait;
use dlock_core::{DynBackend, Error};

use super::{
    Redis,
    store::{connect, url},
};
use crate::{
    faults::{CLOCK_BACK, CLOCK_FORWARD, EMPTIED, Kind, Micros},
    plan::Plan,
    random::Rng,
    world::{Held, Loss, Server, Store, World},
};

/// How much longer than the leases the restart guard is. Tokens stay in order after a loss of data if
/// clocks differ by less.
const MORE: Micros = 1_000_000;

const MASTER_EMPTIED: &str = "a master loses its data";

/// The store.
#[derive(Debug)]
pub(crate) struct QuorumStore;

#[async_trait]
impl Store for QuorumStore {
    fn name(&self) -> &'static str {
        "quorum"
    }

    fn addresses(&self) -> &'static [&'static str] {
        &["10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379"]
    }

    fn can_have(&self, kind: Kind) -> bool {
        ![EMPTIED, CLOCK_FORWARD, CLOCK_BACK].contains(&kind)
    }

    fn own_faults(&self) -> &'static [&'static str] {
        &[MASTER_EMPTIED]
    }

    fn draw(&self, plan: &mut Plan, _: &mut Rng) {
        plan.url = url("redis+quorum", self.addresses(), plan);
    }

    fn servers(&self, plan: &Plan, _: &mut World) -> Vec<Rc<RefCell<dyn Server>>> {
        let masters = (0..3).map(|at| -> Rc<RefCell<dyn Server>> {
            Rc::new(RefCell::new(Redis::new(plan.seed.wrapping_add(at))))
        });
        masters.collect()
    }

    async fn connect(&self, _: usize, plan: &Plan) -> Result<DynBackend, Error> {
        let guard = match plan.mutant {
            Some("no-guard") => 0,
            _ => (plan.longest_hold() + MORE) / 1000,
        };
        connect(&format!("{}&dlock.restart_guard={guard}ms", plan.url)).await
    }

    /// Holds that a bare majority has granted are lost if one of them loses its data.
    fn inject(&self, _: &str, host: usize, time: Micros, world: &mut World) -> bool {
        let clock = world.hosts[host].clock.at(world.now);
        let mut grants = world.hosts[host].server.borrow_mut().held(clock);
        // Not each master has the token on which the majority has agreed.
        grants.iter_mut().for_each(|grant: &mut Held| grant.tokens = (0, u64::MAX));
        world.losses.push(Loss { at: world.now, grants, is_guarded: true });
        world.host_restarts(host, false, time);
        true
    }

    /// A claim is left if a majority has it. A claim of a minority ends with its lease.
    fn left(&self, world: &World) -> Vec<String> {
        let mut all = BTreeMap::<String, Vec<String>>::new();
        for host in &world.hosts {
            for line in host.server.borrow_mut().left(host.clock.at(world.now)) {
                all.entry(claim_in(&line).to_owned()).or_default().push(line);
            }
        }
        all.into_values().filter(|lines| lines.len() > 1).flatten().collect()
    }
}

/// Returns the claim in a line of the data.
fn claim_in(line: &str) -> &str {
    let is_claim =
        |part: &&str| part.len() == 32 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    line.split(|byte: char| !byte.is_ascii_alphanumeric()).find(is_claim).unwrap_or(line)
}
