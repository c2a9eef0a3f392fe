//! One world from its beginning to its end, and the verdict on it.

use std::{collections::BTreeMap, sync::Arc};

use dlock_core::{Instant, sim};
use dlock_soak::{Check, Story};
use dlock_testkit::Stop;

use crate::{
    faults::{Fault, Kind, Micros, What},
    machine::{messages::MessageFaults, server::MachineServer},
    mutant::Mutant,
    plan::{Plan, StoreKind},
    process::{Process, note},
    random,
    redis::Redis,
    world::{self, Host, Server, World, say},
};

/// The step in which processes run. Timers of tokio count whole milliseconds.
const STEP: Micros = 1000;
const SECOND: Micros = 1_000_000;
/// The time after the storm until all clients must work again, beside the longest lease.
const RECOVERY: Micros = 4 * SECOND;
/// The length of the phase in which no attempt may fail or wait for long.
const PEACE: Micros = 4 * SECOND;
/// What a shutdown says that was not answered.
const OUTAGE: &str = "shutdown timed out";
/// The longest time in which processes end.
const ENDS: Micros = 60 * SECOND;

/// What came of a world.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) grants: u64,
    pub(crate) effects: BTreeMap<Kind, u64>,
    pub(crate) simulated: Micros,
    pub(crate) hash: u64,
    pub(crate) violations: Vec<String>,
    /// What happened to the lock of the first violation around its time.
    pub(crate) timeline: Vec<String>,
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
    violations: Vec<String>,
}

/// Runs the world of a plan. `prints` prints all that happens.
pub(crate) fn run(plan: &Plan, prints: bool) -> Outcome {
    random::seed(plan.seed);
    if let Some(rule) = plan.mutant.and_then(Mutant::rule) {
        sim::leave_out(rule);
    }
    let mut world = World::new(plan.seed, plan.latency.clone(), prints);
    let server = match plan.store {
        StoreKind::Redis => Server::Redis(Redis::new(plan.seed)),
        StoreKind::Machine => Server::Machine(MachineServer::new(plan.mutant)),
    };
    world.mail.faults = plan.messages.clone();
    let mut host = Host::new("10.0.0.1:6379", server);
    host.clock.run_at(0, plan.store_rate);
    world.hosts.push(host);
    world::begin(world);
    let slots = (0..plan.processes).map(|_| Slot { process: None, begins_at: 0 }).collect();
    let story = Story::new(plan.load.clone());
    let mut run = Run { plan, story, slots, begun: 0, left: Vec::new(), violations: Vec::new() };
    let ended = run.live();
    run.judge(ended)
}

impl Run<'_> {
    /// Lets the world live until all processes have ended and no lease of theirs is left. Returns
    /// the time.
    fn live(&mut self) -> Micros {
        let (storm, lease) = (self.plan.storm, self.plan.longest_lease());
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
            if now == storm {
                self.repair(now);
                self.story.calm(instant(now));
            } else if now == well {
                self.story.well(instant(now));
            } else if now == end {
                self.story.end();
            }
            for slot in 0..self.slots.len() {
                self.run_slot(slot, now, end);
            }
            let is_over = self.slots.iter().all(|slot| slot.process.is_none());
            if now >= end && is_over {
                break;
            }
            if now >= end + ENDS {
                self.violations.push("a process does not end".to_owned());
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
        let verdict = process.end(now).map_err(Stop::into_text);
        self.slots[slot].begins_at = now;
        say!("process {number} has ended: {verdict:?}");
        match verdict {
            // It has left in an outage, which may last for long.
            Err(why) if process.leaves && why.contains(OUTAGE) => return,
            Err(why) => self.story.broke(number, instant(now), why),
            Ok(()) => {}
        }
        let note = note(number);
        let left = world::with(World::left);
        if let Some(left) = left.iter().find(|left| left.contains(&note)) {
            self.violations.push(format!("process {number} has ended and left this: {left}"));
        }
    }

    fn inject(&mut self, fault: &Fault, now: Micros) {
        let took = match fault.what {
            What::Kill { process, with_machine, pause } => {
                self.kill(process, with_machine, now, pause)
            }
            What::Freeze { process, time, timers_first } => {
                self.freeze(process, now, time, timers_first)
            }
            What::Leave { process } => self.leave(process),
            What::Cut { process, up, down, time } => {
                self.cut(process, (up, down), now, time);
                // It counts once it has held something back.
                false
            }
            What::Reset { process } => match self.number_of(process) {
                Some(number) => world::with(|world| world.reset(number)),
                None => false,
            },
            What::Restart { keeps_data, down } => self.restart(keeps_data, now, down),
            What::Busy { time } => {
                world::with(|world| world.host_is_busy(0, time));
                self.note(fault, now, now + time);
                true
            }
            What::Step { by } => {
                world::with(|world| world.hosts[0].clock.step(now, by));
                if by > 0 {
                    let until = now + self.plan.response_timeout;
                    self.story.excuse(instant(now), instant(until));
                }
                self.note(fault, now, now);
                true
            }
            What::Rate { ppm } => {
                world::with(|world| world.hosts[0].clock.run_at(now, ppm));
                true
            }
            What::ForgetCache => {
                world::with(|world| world.hosts[0].server.forget_cache());
                true
            }
        };
        let took_text = if took { "" } else { ", not yet or in vain" };
        say!("fault {}: {:?}{took_text}", fault.number, fault.what);
        if took {
            world::with(|world| world.effects.took(fault.what.kind()));
        }
    }

    fn note(&self, fault: &Fault, at: Micros, until: Micros) {
        let kind = fault.what.kind().to_string();
        self.story.note(&kind, instant(at), instant(until), None);
    }

    /// The number of the process in this slot, if one runs.
    fn number_of(&self, slot: usize) -> Option<usize> {
        Some(self.slots[slot].process.as_ref()?.number)
    }

    fn kill(&mut self, slot: usize, with_machine: bool, now: Micros, pause: Micros) -> bool {
        let Some(mut process) = self.slots[slot].process.take() else { return false };
        self.story.killed(process.number, instant(now));
        process.kill(now, with_machine);
        self.slots[slot].begins_at = now + pause;
        true
    }

    fn freeze(&mut self, slot: usize, now: Micros, time: Micros, timers_first: bool) -> bool {
        let Some(process) = &mut self.slots[slot].process else { return false };
        if !process.freeze(now + time, timers_first) {
            return false;
        }
        let number = process.number;
        self.story.note("frozen", instant(now), instant(now + time), Some(number));
        true
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

    fn cut(&mut self, slot: usize, (up, down): (bool, bool), now: Micros, time: Micros) {
        let Some(number) = self.number_of(slot) else { return };
        self.story.note("cut", instant(now), instant(now + time), Some(number));
        world::with(|world| world.cut(number, up, down, time));
    }

    fn restart(&self, keeps_data: bool, now: Micros, down: Micros) -> bool {
        if !keeps_data && !self.plan.guarded {
            let until = now + down + self.plan.response_timeout;
            self.story.excuse(instant(now), instant(until));
        }
        let kind = if keeps_data { Kind::Restarted } else { Kind::Emptied };
        self.story.note(&kind.to_string(), instant(now), instant(now + down), None);
        world::with(|world| world.host_restarts(0, keeps_data, down));
        true
    }

    /// The storm is over: all links are whole, and all processes go on.
    fn repair(&mut self, now: Micros) {
        say!("the storm is over");
        world::with(|world| {
            world.latency.slow.0 = 0;
            world.mail.faults = MessageFaults::default();
            let cut: Vec<usize> = world.links.keys().copied().collect();
            cut.into_iter().for_each(|process| world.heal(process));
            for host in &mut world.hosts {
                host.down_until = host.down_until.min(now);
            }
        });
        for process in self.slots.iter_mut().filter_map(|slot| slot.process.as_mut()) {
            process.wake(now);
        }
    }

    fn judge(self, ended: Micros) -> Outcome {
        let Self { plan, story, slots, left, mut violations, .. } = self;
        for slot in slots {
            if let Some(mut process) = slot.process {
                process.kill(ended, true);
            }
        }
        let mut world = world::end();
        violations.extend(world.left().into_iter().map(|left| format!("left behind: {left}")));
        let mut timeline = Vec::new();
        match story.report(instant(0), instant(ended)) {
            Ok(report) => {
                let loses = plan.guarded && plan.has(Kind::Emptied);
                let found = report.violations().into_iter();
                // In an outage, cancels are under way until the end.
                let is_of = |text: &str, number| text.contains(&format!("process {number} has"));
                let found = found.filter(|(check, text)| match check {
                    Check::Losses => !loses,
                    Check::Leaks => !left.iter().any(|number| is_of(text, number)),
                    _ => true,
                });
                violations.extend(found.map(|(check, text)| format!("{check}: {text}")));
                timeline = violations.first().map(|text| report.timeline(text)).unwrap_or_default();
            }
            Err(stop) => violations.push(stop.into_text()),
        }
        Outcome {
            grants: story.grants() as u64,
            effects: world.effects.0.clone(),
            simulated: world.now,
            hash: world.hash(),
            violations,
            timeline,
        }
    }
}

fn instant(at: Micros) -> Instant {
    Instant::from_nanos(at * 1000)
}
