//! The cases of the fault tests: rows of the [table](SETUPS), each on a new store, for a few seconds.

use std::sync::Arc;

use dlock_core::{DynBackend, Error};
use dlock_testkit::{Stop, Verdict};
use rand::seq::SliceRandom;

use super::{
    fault::{
        Effect,
        Fault::{
            self, CancelStorm, ConnectionsCut, Failover, FollowerCut, HalfOpen, HistoryCompacted,
            HolderKilled, HolderStalled, HolderStopped, LaggingFailover, LeaderCut, LeaderKilled,
            LeaderMoved, LeaderStopped, MemberAway, MemberSlow, MinorityAway, PushesLost,
            RepliesDelayed, RepliesDropped, RequestsHeld, ScriptsForgotten, ServerEmptied,
            ServerKilled, ServerStopped, SessionsEnded, SlotMoved, Takeover, TasksAborted,
        },
        Promise,
    },
    run::{Scenario, Storm},
    scene::{Findings, Injection, Scene, injections_text},
    setups::{SETUPS, Setup, faults},
    topology::Connect,
};

/// The cases: names, and the faults of each. Clocks step only in the command, since the records of
/// their stores remain for long.
const CASES: [(&str, &[Fault]); 22] = [
    ("holders_killed", &[HolderKilled, TasksAborted]),
    ("holders_stopped", &[HolderStopped, HolderStalled]),
    ("attempts_cancelled", &[CancelStorm]),
    ("connections_cut", &[ConnectionsCut, SessionsEnded]),
    ("messages_lost", &[HalfOpen, RequestsHeld, RepliesDropped, RepliesDelayed, PushesLost]),
    ("scripts_forgotten", &[ScriptsForgotten]),
    ("server_stopped", &[ServerStopped]),
    ("server_killed", &[ServerKilled]),
    ("server_emptied", &[ServerEmptied]),
    ("failover", &[Failover]),
    ("lagging_failover", &[LaggingFailover]),
    ("takeover", &[Takeover]),
    ("slot_moved", &[SlotMoved]),
    ("minority_away", &[MinorityAway]),
    ("leader_killed", &[LeaderKilled]),
    ("leader_stopped", &[LeaderStopped]),
    ("leader_cut", &[LeaderCut]),
    ("leader_moved", &[LeaderMoved]),
    ("follower_cut", &[FollowerCut]),
    ("member_slow", &[MemberSlow]),
    ("member_away", &[MemberAway]),
    ("history_compacted", &[HistoryCompacted]),
];

/// The topologies in which a further case injects the faults of all cases in random order.
const MIXED: [&str; 6] = ["redis", "postgres", "mysql", "zk-single", "zk", "etcd"];

/// The name of such a case.
const ALL: &str = "all_faults";

/// How many attempts the case that cancels them has to cancel.
const CANCELS: usize = 1000;

/// How many faults of a mixed case have to take effect.
const LEAST: usize = 4;

/// How often a mixed case may inject a fault in vain.
const IN_VAIN: usize = 2;

/// Returns the cases of a store, as `DLOCK_TEST_REQUIRE` names it: each of its faults is injected in
/// the first topology that has it with this promise.
pub fn scenarios<C, F>(store: &str, connect: C) -> Vec<Scenario>
where
    C: Fn(String) -> F + Send + Sync + 'static,
    F: Future<Output = Result<DynBackend, Error>> + Send + 'static,
{
    let connect: Arc<Connect> = Arc::new(move |url| Box::pin(connect(url)));
    let mut all = Vec::new();
    for (setup, name, faults) in cases(store) {
        let connect = Arc::clone(&connect);
        let title = format!("{}::{name}", setup.name);
        let case = move || storm(setup, name, faults.clone(), Arc::clone(&connect));
        all.push(Scenario::new(&title, case).over(setup.store));
    }
    all
}

fn cases(store: &str) -> Vec<(&'static Setup, &'static str, Vec<Fault>)> {
    let (mut all, mut seen) = (Vec::new(), Vec::new());
    for setup in SETUPS.iter().filter(|setup| setup.store == store) {
        for (name, of_case) in CASES {
            let rows = faults(setup.rows).filter(|row| of_case.contains(&row.0));
            let new: Vec<_> = rows.filter(|row| !seen.contains(row)).collect();
            if !new.is_empty() {
                all.push((setup, name, new.iter().map(|(fault, _)| *fault).collect()));
                seen.extend(new);
            }
        }
        if MIXED.contains(&setup.name) {
            let is_of_case = |fault| CASES.iter().any(|(_, faults)| faults.contains(&fault));
            let rows = faults(setup.rows).filter(|row| row.1 == Promise::All && is_of_case(row.0));
            all.push((setup, ALL, rows.map(|(fault, _)| fault).collect()));
        }
    }
    all
}

/// Injects these faults, in random order, until each of them took effect and enough has happened for
/// a verdict.
async fn storm(
    setup: &'static Setup,
    name: &'static str,
    faults: Vec<Fault>,
    connect: Arc<Connect>,
) -> Verdict {
    let topology = setup.open(&faults, &*connect).await?;
    let (mut load, mut storm) = (topology.load(), Storm::begin(name));
    if faults == [CancelStorm] {
        (load, storm) = (load.with_cancels(85).with_tasks(12), storm.with_cancels(CANCELS));
    }
    let mut scene = Scene::start(topology, setup.rows, load, false).await?;
    let missed = |scene: &Scene| missed(&faults, name == ALL, &scene.injections);
    let (pause, mut next) = (pause(setup, &faults), Vec::new());
    while storm.goes_on(&scene.running, pause, missed(&scene).is_none()).await {
        if next.is_empty() {
            next.clone_from(&faults);
            next.shuffle(&mut rand::rng());
        }
        let Some(fault) = next.pop() else { break };
        scene.inject(fault).await?;
    }
    let (missed, began) = (missed(&scene), scene.running.began());
    let Findings { injections, report, violations } = scene.finish(&*connect).await?;
    println!("{}: {}", setup.name, injections_text(&injections, began));
    // Without a report, a process hangs, which is a violation.
    let report = report.unwrap_or_default();
    let judged = storm.says(&report)?;
    report.judge(&violations)?;
    missed.map_or(Ok(()), |missed| Err(Stop::failed(missed)))?;
    judged.enough()
}

/// Returns the longest pause before a fault, in milliseconds. After some faults the store stays for
/// long enough that its clients find it, which look for it less and less often if they have sessions,
/// and that a restart guard ends. Others harm a few requests only, so they follow each other quickly.
fn pause(setup: &Setup, faults: &[Fault]) -> u64 {
    let is_away = |fault: &Fault| {
        matches!(fault, ServerStopped | ServerKilled | ServerEmptied)
            || matches!(fault, LeaderStopped | LeaderKilled | LeaderCut)
    };
    let is_brief =
        |fault: &Fault| matches!(fault, ScriptsForgotten | HistoryCompacted | MemberSlow);
    match (faults.iter().all(is_away), setup.store) {
        _ if faults.iter().all(is_brief) => 60,
        (true, "zk" | "etcd") => 1600,
        (true, _) if faults == [ServerEmptied] => 2000,
        (true, _) => 800,
        (false, _) => 300,
    }
}

/// Returns a fault that has not taken effect, with the last reason. Of mixed faults, [`LEAST`] must
/// have taken effect, and each that was injected more than [`IN_VAIN`] times.
fn missed(faults: &[Fault], is_mixed: bool, injections: &[Injection]) -> Option<String> {
    let is_proven = |one: &Injection| one.effect == Effect::Proven;
    let proven = injections.iter().filter(|one| is_proven(one)).count();
    let may_miss = is_mixed && proven >= LEAST;
    let is_fine = |fault: &Fault| {
        let of_it = || injections.iter().filter(|one| one.fault == *fault);
        of_it().any(is_proven) || may_miss && of_it().count() <= IN_VAIN
    };
    let fault = faults.iter().find(|fault| !is_fine(fault))?;
    let last = injections.iter().rfind(|one| one.fault == *fault).map(|one| &one.effect);
    Some(match last {
        Some(Effect::Missed(why)) => format!("{fault} never took effect: {why}"),
        _ => format!("{fault} was not injected"),
    })
}

#[cfg(test)]
mod tests {
    use dlock_core::Instant;

    use super::*;

    #[test]
    fn each_fault_of_a_store_has_one_case_for_each_promise() {
        for store in ["redis", "postgres", "mysql", "zk", "etcd"] {
            let mut tested = Vec::new();
            for (setup, _, of_case) in cases(store).iter().filter(|case| case.1 != ALL) {
                let promised = faults(setup.rows).filter(|row| of_case.contains(&row.0));
                tested.extend(promised.map(|(fault, promise)| (fault, promise as u8)));
            }
            let count = tested.len();
            tested.sort_unstable();
            tested.dedup();
            assert_eq!(tested.len(), count, "{store}: twice");
            let rows = SETUPS.iter().filter(|setup| setup.store == store);
            for (fault, promise) in rows.flat_map(|setup| faults(setup.rows)) {
                if fault == Fault::HolderClock || Fault::CLOCK.contains(&fault) {
                    continue;
                }
                assert!(tested.contains(&(fault, promise as u8)), "{store}: {fault}");
            }
        }
    }

    #[test]
    fn a_fault_that_never_takes_effect_is_reported() {
        let at = Instant::from_nanos(1);
        let done = |fault, effect| Injection { fault, at, until: at, effect };
        let in_vain = || Effect::Missed("in vain".to_owned());
        let faults = [HalfOpen, PushesLost];
        let half = [done(HalfOpen, Effect::Proven), done(PushesLost, in_vain())];
        let text = missed(&faults, false, &half).expect("one is missed");
        assert!(text.contains("notifications lost") && text.contains("in vain"), "{text}");
        assert!(missed(&faults, true, &half).is_some());
        let mixed = [vec![half[0].clone(); LEAST], vec![half[1].clone(); IN_VAIN]].concat();
        assert_eq!(missed(&faults, true, &mixed), None);
        let text = missed(&faults, true, &[&mixed[..], &half[1..]].concat()).expect("once more");
        assert!(text.contains("notifications lost") && text.contains("in vain"), "{text}");
        let whole =
            [done(PushesLost, in_vain()), half[0].clone(), done(PushesLost, Effect::Proven)];
        assert_eq!(missed(&faults, false, &whole), None);
    }
}
