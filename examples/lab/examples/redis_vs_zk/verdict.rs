//! The conclusion from the measurements, in sentences: which store to choose, and why.

use std::cmp::Ordering;

use dlock::guarantees::{Exclusion, Fencing, OrphanRelease, Scope, WakeUp};

use crate::{
    args::Args,
    figures::{Figures, Restart},
    table::time,
};

/// Returns the recommendation with its reasons. It uses only measurements, and lists what was not
/// measured.
pub(crate) fn sentences(all: &[Figures], args: &Args) -> Vec<String> {
    let mut sentences = [
        uncontended(all),
        woken(all, args),
        orphans(all, args),
        restarts(all),
        cuts(all),
        choice(all),
    ]
    .concat();
    if args.urls.is_empty() {
        let several = "Not measured: several servers of which one is lost. GUARANTEES.md says what \
                       an ensemble, a cluster, replicas and a quorum keep then.";
        sentences.push(several.to_owned());
    }
    sentences
}

/// Returns the guarantees that did not hold.
pub(crate) fn broken(all: &[Figures]) -> Vec<String> {
    let mut broken = Vec::new();
    for Figures { name, speed, faults } in all {
        if let Some(cut) = faults.cut.filter(|cut| cut.told > cut.passed) {
            let late = time(cut.told - cut.passed);
            broken.push(format!("{name}: the holder that was cut off knew it {late} too late"));
        }
        let Some(Restart { first, second: Some(second), .. }) = faults.restart else { continue };
        if speed.guarantees.exclusion >= Exclusion::Restart {
            broken.push(format!("{name}: it promises to know its holders after a restart"));
        }
        if speed.guarantees.fencing >= Fencing::Clock && second <= first {
            broken.push(format!("{name}: token {second} came after {first}"));
        }
    }
    broken
}

fn uncontended(all: &[Figures]) -> Vec<String> {
    let fast = all.iter().min_by_key(|f| f.speed.p50);
    let slow = all.iter().max_by_key(|f| f.speed.p50);
    let (Some(fast), Some(slow)) = (fast, slow) else { return Vec::new() };
    if fast.name == slow.name {
        return Vec::new();
    }
    let times = slow.speed.p50.as_secs_f64() / fast.speed.p50.as_secs_f64();
    let keeps = |f: &Figures| f.speed.guarantees.exclusion >= Exclusion::Restart;
    let price = match keeps(slow) && !keeps(fast) {
        true => {
            format!(" It buys a promise that {} does not give: to survive a restart.", fast.name)
        }
        false => String::new(),
    };
    vec![format!(
        "Quiet: {} takes and releases a lock in {}, and {} takes {times:.1} times as long.{price}",
        fast.name,
        time(fast.speed.p50),
        slow.name,
    )]
}

fn woken(all: &[Figures], args: &Args) -> Vec<String> {
    let best = |wake_up| {
        let those = all.iter().filter(|f| f.speed.guarantees.wake_up == wake_up);
        those.max_by(|a, b| by_hand_offs(a, b))
    };
    let rate = |f: &Figures| format!("{}: {:.0} a second", f.name, f.speed.hand_offs);
    let push = best(WakeUp::Push).map(|f| format!("best that tells its waiters, {}", rate(f)));
    let poll = best(WakeUp::Poll).map(|f| format!("best whose waiters ask, {}", rate(f)));
    let both: Vec<_> = push.into_iter().chain(poll).collect();
    vec![format!("Contended by {} clients, hand-offs: {}.", args.clients, both.join("; "))]
}

fn orphans(all: &[Figures], args: &Args) -> Vec<String> {
    let of = |kind, what: &str| {
        let those: Vec<_> = all
            .iter()
            .filter(|f| f.speed.guarantees.orphan_release == kind)
            .map(|f| format!("{} {}", f.name, time(f.faults.orphan)))
            .collect();
        let after = "the next one has the lock of a killed holder after";
        (!those.is_empty()).then(|| format!("Where {what}, {after}: {}.", those.join(", ")))
    };
    let session = match args.urls.is_empty() {
        true => "its session has to end, which is longer than that lease",
        false => "its session has to end",
    };
    [of(OrphanRelease::LeaseEnd, "its lease has to end"), of(OrphanRelease::SessionEnd, session)]
        .into_iter()
        .flatten()
        .collect()
}

fn restarts(all: &[Figures]) -> Vec<String> {
    let mut sentences = Vec::new();
    let mut kept = Vec::new();
    for f in all {
        let Some(restart) = f.faults.restart else { continue };
        let Some(second) = restart.second else {
            let (away, up) = (time(restart.away), time(restart.up));
            kept.push(format!("{} for {away}, of which its start took {up}", f.name));
            continue;
        };
        let fenced = match second > restart.first {
            true => "was larger, so that a resource which checks tokens refuses the first",
            false => "was NOT larger, so that no resource can tell them apart",
        };
        let first = match restart.believed {
            true => "while the first believed in its lock",
            false => "and told the first",
        };
        sentences.push(format!(
            "Availability first: {} was killed, forgot its holder and let a second one in after \
             {}, {first}. The token of the second {fenced}.",
            f.name,
            time(restart.away),
        ));
    }
    if !kept.is_empty() {
        sentences.push(format!(
            "Consistency first: they answered nobody while they were away ({}), and knew their \
             holder when they came back.",
            kept.join("; ")
        ));
    }
    sentences
}

fn cuts(all: &[Figures]) -> Vec<String> {
    let cuts = all.iter().filter_map(|f| Some((&f.name, f.faults.cut?)));
    let least = cuts.min_by_key(|(_, cut)| cut.passed.saturating_sub(cut.told));
    let Some((name, cut)) = least else { return Vec::new() };
    vec![match cut.passed.checked_sub(cut.told) {
        Some(gap) => format!(
            "Cut off, each holder knew it before the next one had the lock; the closest was {name}, \
             {} before. No message told it, since none came through: its own clock did.",
            time(gap)
        ),
        None => format!("Cut off, the holder on {name} knew it after the next one had the lock."),
    }]
}

fn choice(all: &[Figures]) -> Vec<String> {
    let far = |f: &&Figures| f.speed.guarantees.scope >= Scope::Network;
    let keeps = |f: &&Figures| f.faults.restart.is_some_and(|restart| restart.second.is_none());
    let strict = all.iter().filter(far).filter(keeps).max_by(|a, b| by_hand_offs(a, b));
    let quick = all.iter().filter(far).max_by(|a, b| by_hand_offs(a, b));
    let soon = all.iter().filter(far).min_by_key(|f| f.faults.orphan);
    let late = all.iter().filter(far).max_by_key(|f| f.faults.orphan);
    let near = all.iter().find(|f| f.speed.guarantees.scope == Scope::Machine);
    let mut sentences = Vec::new();
    if let Some(strict) = strict {
        sentences.push(format!(
            "Choose {} where a restart must not let two in: of those that knew their holder it \
             hands over most often.",
            strict.name
        ));
    }
    match (quick, strict) {
        (Some(quick), Some(strict)) if quick.name != strict.name => sentences.push(format!(
            "Choose {} where speed counts and the resource checks tokens, or where two at once cost \
             time and no data: it hands over {:.1} times as often as {}.",
            quick.name,
            quick.speed.hand_offs / strict.speed.hand_offs,
            strict.name
        )),
        (Some(quick), _) => {
            sentences.push(format!("Choose {} for speed: it hands over most often.", quick.name));
        }
        _ => {}
    }
    // The expiry times of equal leases differ by up to one renewal interval.
    if let (Some(soon), Some(late)) = (soon, late)
        && late.faults.orphan > soon.faults.orphan * 3 / 2
    {
        sentences.push(format!(
            "A dead holder is replaced {:.1} times later on {} than on {}. Shorter leases and \
             sessions make it sooner on either, and holders lose their locks in shorter outages.",
            late.faults.orphan.as_secs_f64() / soon.faults.orphan.as_secs_f64(),
            late.name,
            soon.name,
        ));
    }
    if let Some(near) = near {
        sentences.push(format!(
            "Choose {} when all processes are on one machine: it has no server to restart, and hands \
             over {:.0} times a second.",
            near.name, near.speed.hand_offs
        ));
    }
    sentences
}

fn by_hand_offs(a: &Figures, b: &Figures) -> Ordering {
    a.speed.hand_offs.total_cmp(&b.speed.hand_offs)
}
