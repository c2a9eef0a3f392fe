//! One round: a phase without faults, then one with faults, then one without, and the check of what
//! remains when all clients have ended.

use std::{path::Path, time::Duration};

use dlock_core::{DynBackend, Instant};
use dlock_testkit::{Stop, support::now};
use dlock_testlab::SteppedClock;
use rand::seq::SliceRandom;
use tokio::{process::Command, time::sleep};

use super::{
    fault::{Effect, Fault},
    topology::{StoreArg, Topology, connect},
};
use crate::{Check, Report, Running};

/// The length of each part of a round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// The first phase, without faults; it shows the normal rate.
    pub(super) before: Duration,
    pub(super) during: Duration,
    /// The last phase, without faults. The rate has to recover once [`RECOVERY`] is over.
    pub(super) after: Duration,
}

/// The time after the last fault within which the store and its clients must recover.
pub(super) const RECOVERY: Duration = Duration::from_secs(5);

/// The time at the beginning that rates do not count, because clients still connect.
pub(super) const WARM_UP: Duration = Duration::from_secs(1);

/// The longest time for which leftovers may remain. The retention and the leases of dead holders
/// are shorter.
const LEFT: Duration = Duration::from_secs(20);

/// The number of leases for which no process is killed after the clock of a store was wrong. As
/// GUARANTEES.md says, a lease that was granted while the clock was ahead lasts longer by the step.
/// If its holder died, the lock would be unavailable until the end of the run. After this time, all
/// such locks have been released.
const DATED: u32 = 5;

impl Plan {
    /// Plans a round of this length.
    pub(super) fn of(time: Duration) -> Self {
        let before = (time / 6).clamp(Duration::from_secs(5), Duration::from_secs(10));
        let after = RECOVERY + before.max(Duration::from_secs(5)) - WARM_UP;
        Self { before, during: time.saturating_sub(before + after), after }
    }
}

/// A fault that was injected or attempted.
#[derive(Clone, Debug)]
pub(super) struct Injection {
    pub(super) fault: Fault,
    pub(super) at: Instant,
    pub(super) until: Instant,
    pub(super) effect: Effect,
}

/// The result of a round.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) plan: Plan,
    /// The time at which the holders began.
    pub(super) began: Instant,
    pub(super) injections: Vec<Injection>,
    /// The report; `None` if the run of the holders failed.
    pub(super) report: Option<Report>,
    /// All violations.
    pub(super) violations: Vec<(Check, String)>,
}

impl Round {
    /// Runs a round on a new store as planned.
    ///
    /// # Errors
    /// If the store can't be started or repaired: then there is no verdict.
    pub(super) async fn run(
        place: &StoreArg,
        plan: Plan,
        old: Option<&Path>,
    ) -> Result<Self, Stop> {
        let topology = place.open().await?;
        let clock = SteppedClock::start().await?;
        let mut load = topology.load().with_faults_noted().with_old(old.map(Path::to_owned));
        for (name, value) in clock.env() {
            load = load.with_env(name, &value.to_string_lossy());
        }
        let mut running = load.start(&topology.url()).await?;
        let mut round = Self {
            plan,
            began: now(),
            injections: Vec::new(),
            report: None,
            violations: Vec::new(),
        };
        sleep(plan.before).await;
        round.inject(&*topology, &mut running, &clock).await?;
        sleep(plan.after).await;
        if old.is_some() && running.grants_of_old() == 0 {
            return Err(Stop::failed("the older program was granted no lock"));
        }
        match running.finish().await {
            Ok(report) => {
                round.violations.extend(report.violations());
                round.report = Some(report);
            }
            Err(stop) => round.wrong(Check::Hangs, vec![stop.into_text()]),
        }
        round.look(&*topology).await?;
        Ok(round)
    }

    async fn inject(
        &mut self,
        topology: &dyn Topology,
        running: &mut Running,
        clock: &SteppedClock,
    ) -> Result<(), Stop> {
        let end = now().saturating_add(self.plan.during);
        // All faults take turns, each time in another order.
        let mut next: Vec<Fault> = Vec::new();
        let mut dated = now();
        while now() < end {
            if next.is_empty() {
                next = topology.faults();
                next.shuffle(&mut rand::rng());
            }
            let Some(fault) = next.pop() else { break };
            if fault == Fault::HolderKilled && now() < dated {
                if next.is_empty() {
                    sleep(dated.since(now())).await;
                }
                next.insert(0, fault);
                continue;
            }
            let at = now();
            let effect = match fault {
                Fault::HolderClock => step(clock).await?,
                fault if Fault::HOLDERS.contains(&fault) => {
                    inject_into_holders(fault, topology, running).await
                }
                fault => topology.inject(fault).await?,
            };
            let until = now();
            if effect == Effect::Proven {
                if !Fault::HOLDERS.contains(&fault) || fault == Fault::HolderClock {
                    running.note_span(&fault.to_string(), at, until);
                }
                if topology.excuses(fault) {
                    running.excuse(at, until);
                }
                // While the store was unreachable, such locks could not be released.
                if fault.steps_clock() || (fault.takes_store_away() && at < dated) {
                    dated = until.saturating_add(topology.load().longest_lease() * DATED);
                }
            }
            self.injections.push(Injection { fault, at, until, effect });
            sleep(Duration::from_millis(rand::random_range(30..200))).await;
        }
        Ok(())
    }

    /// Checks what remains once all holders have ended.
    async fn look(&mut self, topology: &dyn Topology) -> Result<(), Stop> {
        let end = now().saturating_add(LEFT);
        let linked = settled(end, async || {
            let open = topology.connections().await?;
            Ok(if open == 0 { Vec::new() } else { vec![format!("{open} connections")] })
        })
        .await?;
        self.wrong(Check::Leaks, linked);
        let Some(report) = &self.report else { return Ok(()) };
        // Some stores delete old records only while a client is connected.
        let backend: DynBackend = connect(topology.direct_url()).await?;
        let orphans = report.orphans(&backend).await?;
        self.wrong(Check::Orphans, orphans);
        let sweeper = topology.is_swept_by_clients().then_some(backend);
        let left = settled(now().saturating_add(LEFT), async || topology.left().await).await?;
        drop(sweeper);
        self.wrong(Check::Leaks, left);
        Ok(())
    }

    fn wrong(&mut self, check: Check, texts: Vec<String>) {
        self.violations.extend(texts.into_iter().map(|text| (check, text)));
    }

    /// Returns the time from the beginning to the end of the last fault.
    pub(super) fn faults_end(&self) -> Duration {
        let last = self.injections.last().map(|injection| injection.until.since(self.began));
        last.unwrap_or(self.plan.before)
    }

    /// Returns the faults and their times, in seconds since the beginning.
    pub(super) fn injections_text(&self) -> String {
        let texts = self.injections.iter().map(|injection| {
            let (at, until) = (injection.at.since(self.began), injection.until.since(self.began));
            let missed = if injection.effect == Effect::Proven { "" } else { " (missed)" };
            format!(
                "{:.1}-{:.1} {}{missed}",
                at.as_secs_f64(),
                until.as_secs_f64(),
                injection.fault
            )
        });
        texts.collect::<Vec<_>>().join(", ")
    }

    /// Writes the whole history into a file.
    pub(super) fn write_history(&self, file: &Path) -> Result<(), Stop> {
        self.report.as_ref().map_or(Ok(()), |report| report.write_history(file))
    }
}

async fn inject_into_holders(
    fault: Fault,
    topology: &dyn Topology,
    running: &mut Running,
) -> Effect {
    let lease = topology.load().longest_lease();
    let done = match fault {
        Fault::HolderKilled => running.kill_one().await,
        Fault::HolderStopped => running.stop_one(lease.mul_f64(rand::random_range(0.4..1.6))).await,
        Fault::HolderStalled => {
            running.stall_one(lease.mul_f64(rand::random_range(0.2..1.0))).await
        }
        Fault::TasksAborted => running.abort_one().await.and_then(some_of("task")),
        _ => {
            let storm = running.cancel_storm(85, Duration::from_millis(300)).await;
            storm.and_then(some_of("attempt"))
        }
    };
    match done {
        Ok(()) => Effect::Proven,
        Err(stop) => Effect::Missed(stop.into_text()),
    }
}

/// Steps the wall clock of all holders, which none of them may depend on.
async fn step(clock: &SteppedClock) -> Result<Effect, Stop> {
    const FAR: Duration = Duration::from_secs(60);
    let right = seen_with(clock).await?;
    if rand::random() {
        clock.forward(FAR)?
    } else {
        clock.back(FAR)?
    }
    let off = seen_with(clock).await?.abs_diff(right);
    sleep(Duration::from_millis(rand::random_range(300..900))).await;
    clock.reset()?;
    Ok(match off {
        0..45 => Effect::Missed("the wall clock did not step".to_owned()),
        _ => Effect::Proven,
    })
}

/// Returns the wall clock in seconds, as a program sees it that was started with this clock.
async fn seen_with(clock: &SteppedClock) -> Result<u64, Stop> {
    let date = Command::new("date").arg("+%s").envs(clock.env()).output().await?;
    Ok(str::from_utf8(&date.stdout)?.trim().parse()?)
}

fn some_of(what: &str) -> impl FnOnce(usize) -> Result<(), Stop> {
    move |count| match count {
        0 => Err(Stop::failed(format!("no {what} was met"))),
        _ => Ok(()),
    }
}

/// Waits until nothing remains or the time is over. Returns what remains.
async fn settled(
    end: Instant,
    look: impl AsyncFn() -> Result<Vec<String>, Stop>,
) -> Result<Vec<String>, Stop> {
    loop {
        let left = look().await?;
        if left.is_empty() || now() >= end {
            return Ok(left);
        }
        sleep(Duration::from_millis(100)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_of_a_round_has_faults() {
        for seconds in [30, 60, 120, 600] {
            let time = Duration::from_secs(seconds);
            let plan = Plan::of(time);
            assert_eq!(plan.before + plan.during + plan.after, time);
            assert!(plan.during * 3 >= time, "{plan:?}");
        }
    }
}
