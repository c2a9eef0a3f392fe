//! A store under load, into which faults are injected. The rounds of the command and the fault tests
//! of the backends both use it.

use std::time::Duration;

use dlock_core::Instant;
use dlock_testkit::{
    Stop,
    support::{connected, now},
};
use dlock_testlab::SteppedClock;
use futures_util::future::join;
use tokio::{process::Command, time::sleep};

use super::{
    breach::{Breach, Check},
    fault::{Effect, Fault, Promise},
    parent::Running,
    plan::Load,
    report::Report,
    setups::{FaultRows, faults},
    topology::{Connect, Topology},
};

/// The longest time for which leftovers may remain. It is a backstop for a busy machine: the
/// retention and the leases of dead holders are shorter.
const LEFT: Duration = Duration::from_secs(60);

/// A store under load.
#[derive(Debug)]
pub(crate) struct Scene {
    topology: Box<dyn Topology>,
    rows: FaultRows,
    /// The wall clock of the holders, if it is stepped.
    clock: Option<SteppedClock>,
    longest_lease: Duration,
    pub(crate) running: Running,
    pub(crate) injections: Vec<Injection>,
}

/// A fault that was injected or attempted.
#[derive(Clone, Debug)]
pub(crate) struct Injection {
    pub(crate) fault: Fault,
    pub(crate) at: Instant,
    pub(crate) until: Instant,
    pub(crate) effect: Effect,
}

/// The results of a run.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) injections: Vec<Injection>,
    /// The report; `None` if the run of the holders failed.
    pub(crate) report: Option<Report>,
    /// All violations.
    pub(crate) violations: Vec<Breach>,
}

impl Scene {
    /// Starts holders on a store that keeps the promises of these rows.
    ///
    /// # Errors
    /// If the holders can't be started.
    pub(crate) async fn start(
        topology: Box<dyn Topology>,
        rows: FaultRows,
        mut load: Load,
        steps_clock: bool,
    ) -> Result<Self, Stop> {
        let clock = if steps_clock { Some(SteppedClock::start().await?) } else { None };
        for (name, value) in clock.iter().flat_map(SteppedClock::env) {
            load = load.with_env(name, &value.to_string_lossy());
        }
        let longest_lease = load.longest_lease();
        let running = load.start(&topology.url()).await?;
        Ok(Self { topology, rows, clock, longest_lease, running, injections: Vec::new() })
    }

    /// Injects a fault into the holders or into the store, and repairs the store. Returns the
    /// record of it.
    ///
    /// # Errors
    /// If the store can't be repaired.
    pub(crate) async fn inject(&mut self, fault: Fault) -> Result<&Injection, Stop> {
        let at = now();
        let effect = match fault {
            Fault::HolderClock => match &self.clock {
                Some(clock) => step(clock).await?,
                None => Effect::Missed("the holders have the clock of the machine".to_owned()),
            },
            fault if Fault::HOLDERS.contains(&fault) => self.inject_into_holders(fault).await,
            fault => self.topology.inject(fault).await?,
        };
        let until = now();
        if effect == Effect::Proven {
            if !Fault::HOLDERS.contains(&fault) || fault == Fault::HolderClock {
                self.running.note_span(&fault.to_string(), at, until);
            }
            if self.promise(fault) == Promise::Tokens {
                self.running.excuse(at, until);
            }
        }
        self.injections.push(Injection { fault, at, until, effect });
        Ok(&self.injections[self.injections.len() - 1])
    }

    async fn inject_into_holders(&mut self, fault: Fault) -> Effect {
        let some = |from: f64, to| self.longest_lease.mul_f64(rand::random_range(from..to));
        let (stopped, other, stalled) = (some(0.4, 1.6), some(0.4, 1.6), some(0.2, 1.0));
        let running = &mut self.running;
        let done = match fault {
            Fault::HolderKilled => running.kill_one().await,
            Fault::HolderStopped if running.processes() > 1 && rand::random() => {
                let (one, other) = join(running.stop_one(stopped), running.stop_one(other)).await;
                one.and(other)
            }
            Fault::HolderStopped => running.stop_one(stopped).await,
            Fault::HolderStalled => running.stall_one(stalled).await,
            Fault::TasksAborted => running.abort_one().await.map(drop),
            _ => running.cancel_storm(85, Duration::from_millis(300)).await.map(drop),
        };
        done.map_or_else(|stop| Effect::Missed(stop.into_text()), |()| Effect::Proven)
    }

    /// Ends the load without faults, and judges what happened and what remains.
    ///
    /// # Errors
    /// If the store does not answer: then there is no verdict.
    pub(crate) async fn finish(mut self, connect: &Connect) -> Result<Findings, Stop> {
        let mut found =
            Findings { injections: self.injections.split_off(0), ..Findings::default() };
        let is_weak = |one: &Injection| self.promise(one.fault) == Promise::Exclusion;
        let weak = found.injections.iter().any(is_weak);
        self.topology.until_well().await?;
        match self.running.finish().await {
            Ok(report) => {
                found.violations = report.violations();
                found.violations.retain(|breach| !weak || breach.check != Check::Losses);
                found.report = Some(report);
            }
            Err(stop) => found.wrong(Check::Hangs, vec![stop.into_text()]),
        }
        let topology = self.topology;
        let linked = settled(async || {
            let open = topology.connections().await?;
            Ok(if open == 0 { Vec::new() } else { vec![format!("{open} connections")] })
        });
        found.wrong(Check::Leaks, linked.await?);
        let Some(report) = &found.report else { return Ok(found) };
        // Some stores delete old records only while a client is connected.
        let backend = connected(|| connect(topology.direct_url())).await?;
        let orphans = report.orphans(&backend).await?;
        found.wrong(Check::Orphans, orphans);
        let sweeper = topology.is_swept_by_clients().then_some(backend);
        let left = settled(async || topology.left().await).await?;
        drop(sweeper);
        found.wrong(Check::Leaks, left);
        Ok(found)
    }

    #[cfg(feature = "command")]
    pub(crate) fn longest_lease(&self) -> Duration {
        self.longest_lease
    }

    fn promise(&self, fault: Fault) -> Promise {
        let of_it = faults(self.rows).find(|(of, _)| *of == fault);
        of_it.map_or(Promise::All, |(_, promise)| promise)
    }
}

impl Findings {
    fn wrong(&mut self, check: Check, texts: Vec<String>) {
        self.violations.extend(texts.into_iter().map(|text| Breach::new(check, text)));
    }
}

/// Returns the faults and their times, in seconds since this time.
pub(crate) fn injections_text(injections: &[Injection], began: Instant) -> String {
    let texts = injections.iter().map(|injection| {
        let (at, until) = (injection.at.since(began), injection.until.since(began));
        let missed = if injection.effect == Effect::Proven { "" } else { " (missed)" };
        format!("{:.1}-{:.1} {}{missed}", at.as_secs_f64(), until.as_secs_f64(), injection.fault)
    });
    texts.collect::<Vec<_>>().join(", ")
}

/// Steps the wall clock of all holders, which none of them may depend on.
async fn step(clock: &SteppedClock) -> Result<Effect, Stop> {
    const FAR: Duration = Duration::from_secs(60);
    let right = seen_with(clock).await?;
    if rand::random() {
        clock.forward(FAR)?;
    } else {
        clock.back(FAR)?;
    }
    let off = seen_with(clock).await?.abs_diff(right);
    sleep(Duration::from_millis(rand::random_range(300..900))).await;
    clock.reset()?;
    Ok(Effect::seen(off >= 45, "the wall clock did not step"))
}

/// Returns the wall clock in seconds, as a program sees it that was started with this clock.
async fn seen_with(clock: &SteppedClock) -> Result<u64, Stop> {
    let date = Command::new("date").arg("+%s").envs(clock.env()).output().await?;
    Ok(str::from_utf8(&date.stdout)?.trim().parse()?)
}

/// Waits until nothing remains or the time is over. Returns what remains.
async fn settled(look: impl AsyncFn() -> Result<Vec<String>, Stop>) -> Result<Vec<String>, Stop> {
    let end = now().saturating_add(LEFT);
    loop {
        let left = look().await?;
        if left.is_empty() || now() >= end {
            return Ok(left);
        }
        sleep(Duration::from_millis(100)).await;
    }
}
