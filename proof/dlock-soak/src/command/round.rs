//! One round: a phase without faults, then one with faults, then one without, and the check of what
//! remains when all clients have ended.

use std::{path::Path, time::Duration};

use dlock_core::Instant;
use dlock_testkit::{Stop, support::now};
use rand::seq::SliceRandom;
use tokio::time::sleep;

use super::options::{StoreArg, connect};
use crate::{
    breach::Breach,
    fault::{Effect, Fault},
    report::Report,
    scene::{Findings, Injection, Scene},
    setups::faults,
};

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
    pub(super) violations: Vec<Breach>,
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
        let load = topology.load().with_faults_noted().with_old(old.map(Path::to_owned));
        let mut scene = Scene::start(topology, place.rows(), load, true).await?;
        let began = now();
        sleep(plan.before).await;
        let all: Vec<Fault> = faults(place.rows()).map(|(fault, _)| fault).collect();
        inject(&mut scene, &all, plan.during).await?;
        sleep(plan.after).await;
        if old.is_some() && scene.running.grants_of_old() == 0 {
            return Err(Stop::failed("the older program was granted no lock"));
        }
        let Findings { injections, report, violations } = scene.finish(&connect).await?;
        Ok(Self { plan, began, injections, report, violations })
    }

    /// Returns the time from the beginning to the end of the last fault.
    pub(super) fn faults_end(&self) -> Duration {
        let last = self.injections.last().map(|injection| injection.until.since(self.began));
        last.unwrap_or(self.plan.before)
    }

    /// Writes the whole history into a file.
    pub(super) fn write_history(&self, file: &Path) -> Result<(), Stop> {
        self.report.as_ref().map_or(Ok(()), |report| report.write_history(file))
    }
}

/// Injects these faults for this time. They take turns, each time in another order.
async fn inject(scene: &mut Scene, faults: &[Fault], time: Duration) -> Result<(), Stop> {
    let end = now().saturating_add(time);
    let mut next: Vec<Fault> = Vec::new();
    let mut dated = now();
    while now() < end {
        if next.is_empty() {
            next = faults.to_vec();
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
        let Injection { at, until, effect, .. } = scene.inject(fault).await?;
        // While the store was unreachable, such locks could not be released.
        let is_dated = steps_clock(fault) || (takes_store_away(fault) && *at < dated);
        if *effect == Effect::Proven && is_dated {
            let until = *until;
            dated = until.saturating_add(scene.longest_lease() * DATED);
        }
        sleep(Duration::from_millis(rand::random_range(30..200))).await;
    }
    Ok(())
}

/// Whether clients could not reach the store or receive its answers during this fault.
fn takes_store_away(fault: Fault) -> bool {
    use Fault::{HalfOpen, RepliesDropped, RequestsHeld, ServerKilled, ServerStopped};
    matches!(fault, HalfOpen | RequestsHeld | RepliesDropped | ServerStopped | ServerKilled)
}

/// Whether the clock that measures the leases may have been ahead.
fn steps_clock(fault: Fault) -> bool {
    fault == Fault::HolderClock || Fault::CLOCK.contains(&fault)
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
