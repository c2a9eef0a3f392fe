//! One world from its beginning to its end, and the verdict on it.

use std::{collections::BTreeMap, sync::Arc};

use dlock_core::{ErrorKind, Instant};
use dlock_soak::{Breach, Check, LostGrant, Story};
use serde::{Deserialize, Serialize};

use crate::{
    faults::{self, Fault, MessageFaults, Micros},
    plan::{JOB, Plan},
    process::{Process, note},
    random,
    world::{self, Held, Host, Store, World, say},
};

/// The step in which processes run. Timers of tokio count whole milliseconds.
const STEP: Micros = 1000;
const SECOND: Micros = 1_000_000;
/// The time after the storm until all clients must work again, beside the longest lease.
const RECOVERY: Micros = 4 * SECOND;
/// The length of the phase in which no attempt may fail or wait for long.
const PEACE: Micros = 4 * SECOND;
/// How often the guards are compared with the store.
const LOOK: Micros = 20_000;
/// The largest number of contradictions between guards and the store that are reported.
const SHOWN: usize = 3;
/// The longest time in which processes end.
const ENDS: Micros = 60 * SECOND;

/// What came of a world, as its process prints it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Summary {
    pub(crate) seed: u64,
    pub(crate) grants: u64,
    /// How often each kind of fault took effect.
    pub(crate) effects: BTreeMap<String, u64>,
    pub(crate) simulated: Micros,
    pub(crate) hash: String,
    /// The check that found the first violation.
    pub(crate) check: Option<String>,
    pub(crate) violations: Vec<String>,
    /// What happened to the lock of the first violation around its time.
    pub(crate) timeline: Vec<String>,
    /// The faults of the plan, by their numbers.
    pub(crate) faults: Vec<(usize, String)>,
}

/// A place for a process: after its death another one begins.
struct Slot {
    process: Option<Process>,
    begins_at: Micros,
}

struct Run<'a> {
    plan: &'a Plan,
    story: Arc<Story>,
    slots: Vec<Slot>,
    begun: usize,
    /// The processes that were told to shut down during the storm.
    left: Vec<usize>,
    /// The grants that the store has lost, with the ends of their leases.
    lost: Vec<(Held, Micros)>,
    /// The first tokens of the grants that were in the store, if a restart guard runs, and its end.
    guard: (Micros, Vec<Held>),
    /// The grants that no guard has, by lock and first token, and since when.
    unowned: BTreeMap<(String, u64), Micros>,
    violations: Vec<Breach>,
}

/// Runs the world of a plan. `prints` prints all that happens.
pub(crate) fn run(store: &'static dyn Store, plan: &Plan, prints: bool) -> Summary {
    random::seed(plan.seed);
    let mut world = World::new(store, plan, prints);
    let servers = store.servers(plan, &mut world);
    for ((address, server), rate) in store.addresses().iter().zip(servers).zip(&plan.server_rates) {
        let mut host = Host::new(address, server);
        host.clock.run_at(0, *rate);
        world.hosts.push(host);
    }
    world::begin(world);
    let slots = (0..plan.processes).map(|_| Slot { process: None, begins_at: 0 }).collect();
    let story = Story::new(plan.load.clone());
    let mut run = Run {
        plan,
        story,
        slots,
        begun: 0,
        left: Vec::new(),
        lost: Vec::new(),
        guard: (0, Vec::new()),
        unowned: BTreeMap::new(),
        violations: Vec::new(),
    };
    let ended = run.live();
    run.judge(ended)
}

impl Run<'_> {
    /// Lets the world live until all processes have ended and no lease of theirs is left. Returns
    /// the time.
    fn live(&mut self) -> Micros {
        let (storm, lease) = (self.plan.storm, self.plan.longest_hold());
        let well = storm + RECOVERY + 2 * lease;
        let end = well + PEACE;
        let mut faults = self.plan.faults.iter().peekable();
        let mut now = 0;
        loop {
            now += STEP;
            world::with(|world| world.advance(now));
            while let Some(fault) = faults.next_if(|fault| fault.at <= now) {
                self.inject(fault, now);
            }
            self.excuse();
            if now == storm {
                repair();
                self.story.calm(instant(now));
            } else if now == well {
                self.story.well(instant(now));
            } else if now == end {
                self.story.end();
            }
            for slot in 0..self.slots.len() {
                self.run_slot(slot, now, end);
            }
            if now % LOOK == 0 {
                self.compare(now);
            }
            let is_over = self.slots.iter().all(|slot| slot.process.is_none());
            if now >= end && is_over {
                break;
            }
            if now >= end + ENDS {
                self.violations.push(Breach::new(Check::Hangs, "a process does not end"));
                break;
            }
        }
        let ended = now;
        // Claims of processes that were killed stay for a lease.
        world::with(|world| world.advance(now + 2 * lease + SECOND));
        ended
    }

    fn run_slot(&mut self, slot: usize, now: Micros, end: Micros) {
        let Slot { process, begins_at } = &mut self.slots[slot];
        let Some(process) = process else {
            if now >= *begins_at && now < end {
                let rate = self.plan.rates[self.begun % self.plan.rates.len()];
                self.slots[slot].process =
                    Some(Process::begin(self.begun, rate, self.plan, &self.story));
                self.begun += 1;
            }
            return;
        };
        process.run(now);
        if process.has_ended() {
            self.ended(slot, now);
        }
    }

    /// A process has ended by itself. Nothing of it may be left.
    fn ended(&mut self, slot: usize, now: Micros) {
        let Some(mut process) = self.slots[slot].process.take() else { return };
        let number = process.number;
        let ended = process.end(now);
        self.slots[slot].begins_at = now;
        say!("process {number} has ended: {ended:?}");
        match ended {
            // It has left in an outage, which may last for long.
            Ok(Some(error)) if process.leaves && error.kind() == ErrorKind::Timeout => return,
            Ok(Some(error)) => self.story.broke(number, instant(now), error.to_string()),
            Err(stop) => self.story.broke(number, instant(now), stop.into_text()),
            Ok(None) => {}
        }
        let note = note(number);
        let left = world::with(|world| world.left());
        let is_its = |left: &&String| left.contains(&note) && !left.contains(JOB);
        if let Some(left) = left.iter().find(is_its) {
            let text = format!("process {number} has ended and left this: {left}");
            self.violations.push(Breach::new(Check::Orphans, text));
        }
    }

    /// Records the grants that the store has lost.
    fn excuse(&mut self) {
        for loss in world::with(|world| std::mem::take(&mut world.losses)) {
            // The clock of a server may be slow.
            let until = |grant: &Held| loss.at + grant.remaining + grant.remaining / 200;
            let grants = loss.grants.iter().map(|grant| LostGrant {
                name: grant.name.clone(),
                tokens: grant.tokens,
                until: instant(until(grant)),
            });
            self.story.excuse(instant(loss.at), grants.collect(), loss.is_guarded);
            self.lost.extend(loss.grants.iter().map(|grant| (grant.clone(), until(grant))));
        }
    }

    /// Compares the guards with the store. A lease ends later in the store than for its holder, so
    /// the store has the grant of each guard, unless it has lost it. Within the restart guard there
    /// are no new grants.
    fn compare(&mut self, now: Micros) {
        if self.violations.len() >= SHOWN {
            return;
        }
        let in_store = world::with(|world| world.held());
        self.lost.retain(|(_, until)| *until > now);
        for (process, name, token) in self.story.held(instant(now)) {
            let lost = self.lost.iter().map(|(grant, _)| grant);
            if !in_store.iter().chain(lost).any(|grant| grant.has(&name, token.get())) {
                let text = format!("{name}: the store does not have the grant {token} at {now} us");
                self.violations.push(breach(Check::Losses, text, name, now, Some(process)));
            }
        }
        if now < self.guard.0 {
            let is_new = |grant: &&Held| !self.guard.1.iter().any(|before| before.is(grant));
            if let Some(grant) = in_store.iter().find(is_new) {
                let text = format!("{}: granted within the restart guard: {grant:?}", grant.name);
                self.violations.push(breach(Check::Exclusion, text, grant.name.clone(), now, None));
            }
        }
        self.find_unowned(&in_store, now);
    }

    /// After the storm, a grant of a process that lives has a guard, but for the time in which its
    /// answer or its release travels.
    fn find_unowned(&mut self, in_store: &[Held], now: Micros) {
        let known = std::mem::take(&mut self.unowned);
        let travel = SECOND + 3 * self.plan.response_timeout;
        for grant in in_store.iter().filter(|grant| !grant.name.starts_with(JOB)) {
            let Some(process) = grant.process.filter(|number| self.lives(*number)) else {
                continue;
            };
            if self.story.owns(process, &grant.name, grant.tokens) {
                continue;
            }
            let key = (grant.name.clone(), grant.tokens.0);
            let since = known.get(&key).copied().unwrap_or(now).max(self.plan.storm);
            if now > since + travel {
                let text = format!("process {process} does not have this: {grant:?}");
                let name = grant.name.clone();
                self.violations.push(breach(Check::Orphans, text, name, now, Some(process)));
            }
            self.unowned.insert(key, since);
        }
    }

    fn lives(&self, number: usize) -> bool {
        self.slots.iter().filter_map(|slot| slot.process.as_ref()).any(|of| of.number == number)
    }

    fn inject(&mut self, fault: &Fault, now: Micros) {
        let Fault { number, kind, process, host, time, by, .. } = *fault;
        let took = match kind {
            faults::KILLED | faults::MACHINE_LOST => self.kill(fault, now),
            faults::FROZEN => self.freeze(fault),
            faults::LEFT => self.leave(process),
            faults::CUT | faults::RESET => self.number_of(process).is_some_and(|number| {
                world::with(|world| match kind {
                    faults::CUT => world.cut(number, fault.cut, time),
                    _ => world.reset(number),
                })
            }),
            faults::RESTARTED | faults::EMPTIED => self.restart(fault),
            kind => world::with(|world| {
                match kind {
                    faults::BUSY => world.host_is_busy(host, time),
                    faults::CLOCK_FORWARD => {
                        world.losing(false, |world| world.hosts[host].clock.step(now, by));
                    }
                    faults::CLOCK_BACK => world.hosts[host].clock.step(now, by),
                    faults::CLOCK_RATE => world.hosts[host].clock.run_at(now, by),
                    faults::CACHE_FORGOTTEN => {
                        world.hosts[host].server.borrow_mut().forget_cache();
                    }
                    own => return world.store.inject(own, host, time, world),
                }
                true
            }),
        };
        let took_text = if took { "" } else { ", not yet or in vain" };
        say!("fault {number}: {fault:?}{took_text}");
        if took {
            world::with(|world| world.took(kind));
        }
        if took || kind == faults::CUT {
            let number = [faults::FROZEN, faults::CUT].contains(&kind);
            let number = number.then(|| self.number_of(process)).flatten();
            self.story.note(kind, instant(now), instant(until(time)), number);
        }
    }

    /// The number of the process in this slot, if one runs.
    fn number_of(&self, slot: usize) -> Option<usize> {
        Some(self.slots[slot].process.as_ref()?.number)
    }

    fn kill(&mut self, fault: &Fault, now: Micros) -> bool {
        let slot = &mut self.slots[fault.process];
        let Some(mut process) = slot.process.take() else { return false };
        self.story.killed(process.number, instant(now));
        process.kill(now, fault.kind == faults::MACHINE_LOST);
        slot.begins_at = now + fault.time;
        true
    }

    fn freeze(&mut self, fault: &Fault) -> bool {
        let Some(process) = &mut self.slots[fault.process].process else { return false };
        process.freeze(until(fault.time), fault.timers_first)
    }

    fn leave(&mut self, slot: usize) -> bool {
        let Some(process) = &mut self.slots[slot].process else { return false };
        let begins = !std::mem::replace(&mut process.leaves, true);
        if begins {
            self.story.leave(process.number);
            self.left.push(process.number);
        }
        begins
    }

    fn restart(&mut self, fault: &Fault) -> bool {
        let (keeps_data, guarded) = (fault.kind == faults::RESTARTED, self.plan.guarded);
        self.guard.1 = world::with(|world| {
            let restart = |world: &mut World| {
                world.host_restarts(fault.host, keeps_data, fault.time);
            };
            match keeps_data {
                true => restart(world),
                false => world.losing(guarded, restart),
            }
            world.held()
        });
        if guarded {
            let guard = self.plan.longest_hold();
            // The clock of a process may be fast.
            self.guard.0 = until(fault.time) + guard - guard / 100;
        }
        true
    }

    fn judge(self, ended: Micros) -> Summary {
        let Self { plan, story, slots, left, mut violations, .. } = self;
        for slot in slots {
            if let Some(mut process) = slot.process {
                process.kill(ended, true);
            }
        }
        let world = world::end();
        let left_behind = world.left().into_iter();
        violations.extend(left_behind.map(|left| Breach::new(Check::Orphans, left)));
        let mut timeline = Vec::new();
        match story.report(instant(0), instant(ended)) {
            Ok(report) => {
                // In an outage, cancels are under way until the end.
                let is_excused = |breach: &Breach| match breach.check {
                    Check::Leaks => breach.process.is_some_and(|number| left.contains(&number)),
                    Check::Tokens | Check::Resource => world.is_split,
                    _ => false,
                };
                violations.extend(report.violations().into_iter().filter(|one| !is_excused(one)));
                timeline = violations.first().map(|one| report.timeline(one)).unwrap_or_default();
            }
            Err(stop) => violations.push(Breach::new(Check::Errors, stop.into_text())),
        }
        let effects = world.effects.iter().map(|(kind, count)| ((*kind).to_owned(), *count));
        let faults = plan.faults.iter().map(|fault| (fault.number, format!("{fault:?}")));
        Summary {
            seed: plan.seed,
            grants: story.grants() as u64,
            effects: effects.collect(),
            simulated: world.now,
            hash: format!("{:016x}", world.hash),
            check: violations.first().map(|breach| breach.check.to_string()),
            violations: violations.iter().map(ToString::to_string).collect(),
            timeline,
            faults: faults.collect(),
        }
    }
}

/// The storm is over. Other faults end by then by themselves.
fn repair() {
    say!("the storm is over");
    world::with(|world| {
        world.latency.slow.0 = 0;
        world.messages = MessageFaults::default();
    });
}

/// Returns when a fault ends that would last for this time.
fn until(time: Micros) -> Micros {
    world::with(|world| world.until(time))
}

fn instant(at: Micros) -> Instant {
    Instant::from_nanos(at * 1000)
}

/// A guard and the store contradict each other.
fn breach(check: Check, text: String, lock: String, at: Micros, process: Option<usize>) -> Breach {
    let mut breach = Breach::new(check, text);
    (breach.lock, breach.at, breach.process) = (Some(lock), Some(instant(at)), process);
    breach
}
