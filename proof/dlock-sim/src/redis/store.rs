//! A single Redis server as a store of the simulation.

use std::{cell::RefCell, rc::Rc};

use async_trait::async_trait;
use dlock_core::{DynBackend, Error};
use dlock_redis::RedisConfig;

use super::{KeyLine, Redis};
use crate::{
    faults::Micros,
    plan::Plan,
    random::Rng,
    world::{Held, Server, Store, World, process_in},
};

#[derive(Debug)]
pub(crate) struct RedisStore;

#[async_trait]
impl Store for RedisStore {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn draw(&self, plan: &mut Plan, rng: &mut Rng) {
        plan.url = url("redis", self.addresses(), plan);
        plan.guarded = rng.chance(200_000);
        if plan.guarded {
            plan.url += &format!("&dlock.restart_guard={}ms", plan.longest_hold() / 1000);
        }
    }

    fn servers(&self, plan: &Plan, _: &mut World) -> Vec<Rc<RefCell<dyn Server>>> {
        let patches = plan.mutant.map(patches).unwrap_or_default();
        vec![Rc::new(RefCell::new(Redis::new(plan.seed).with_patches(patches)))]
    }

    async fn connect(&self, _: usize, plan: &Plan) -> Result<DynBackend, Error> {
        connect(&plan.url).await
    }
}

/// Returns the URL of these servers.
pub(super) fn url(scheme: &str, addresses: &[&str], plan: &Plan) -> String {
    let (hosts, timeout) = (addresses.join(","), plan.response_timeout / 1000);
    format!("{scheme}://{hosts}?dlock.response_timeout={timeout}ms")
}

pub(super) async fn connect(url: &str) -> Result<DynBackend, Error> {
    dlock_redis::Redis::connect(RedisConfig::from_url(url)?).await
}

/// Returns the texts in scripts that a mutant replaces, each with what stands there instead.
fn patches(mutant: &str) -> &'static [(&'static str, &'static str)] {
    match mutant {
        "late-renewal-cuts" => &[
            ("if s.final=='*' then", "if false then"),
            ("if final=='*' then", "if false then"),
            (",lease,'GT')", ",lease)"),
            ("elseif is_last or ends+0<later then", "else"),
        ],
        "grants-within-guard" => &[
            ("local frozen=ARGV[3]~=nil", "local frozen=false"),
            ("local frozen=#ARGV%5==1", "local frozen=false"),
        ],
        _ => &[],
    }
}

impl Server for Redis {
    fn receive(&mut self, world: &mut World, connection: u64, bytes: &[u8]) {
        let clock = world.clock_of(connection);
        for (to, answer) in self.receive(connection, bytes, clock) {
            world.answer(to, answer);
        }
    }

    fn closed(&mut self, connection: u64) {
        self.closed(connection);
    }

    fn restart(&mut self, world: &mut World, keeps_data: bool) {
        self.restart(world.rng.any(), keeps_data);
    }

    fn forget_cache(&mut self) {
        self.scripts.forget();
    }

    fn left(&mut self, clock: Micros) -> Vec<String> {
        self.left(clock)
    }

    fn held(&mut self, clock: Micros) -> Vec<Held> {
        held_in(&self.lines(clock), clock)
    }
}

/// Returns the grants in lines of the data, at this time of the clock.
pub(super) fn held_in(lines: &[String], clock: Micros) -> Vec<Held> {
    let entries: Vec<_> = lines.iter().filter_map(|line| KeyLine::read(line)).collect();
    let held = entries.iter().filter_map(|entry| {
        let of = |kind, claim| {
            let mut all = entries.iter().filter(|other| other.name == entry.name);
            Some(all.find(|other| (other.kind, other.claim) == (kind, claim))?.value)
        };
        let (first, last, remaining, record) = match entry.kind {
            "" => {
                let (_, rest) = entry.value.split_at_checked(33)?;
                let tokens = rest.split([' ', '*']).next()?;
                let first = number(tokens).or_else(|| taken(lines, tokens.strip_prefix('~')?))?;
                let count = tokens.split_once('/').map_or(Some(1), |(_, count)| number(count))?;
                (first, first + count - 1, entry.lifetime * 1000, entry.value)
            }
            "r" => {
                let record = of("w", entry.claim)?;
                let mut fields = record.split(':').skip(2);
                let (tokens, first) = (number(fields.next()?)?, number(fields.nth(1)?)?);
                (first, first + tokens - 1, number(entry.value)?.checked_sub(clock)?, record)
            }
            _ => return None,
        };
        let (name, process) = (entry.name.to_owned(), process_in(record));
        Some(Held { name, tokens: (first, last), remaining, process })
    });
    held.collect()
}

/// The token that plain commands of this sending have taken, in the lines of a stream.
fn taken(lines: &[String], sending: &str) -> Option<u64> {
    let is_its = |line: &&String| line.contains("}t (") && line.ends_with(sending);
    let id = lines.iter().rfind(is_its)?.split_once("): ")?.1.split(' ').next()?;
    let (millis, sequence) = id.split_once('-')?;
    Some(number(millis)? * 1000 + number(sequence)?)
}

/// The number that a text begins with.
fn number(text: &str) -> Option<u64> {
    text.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}
