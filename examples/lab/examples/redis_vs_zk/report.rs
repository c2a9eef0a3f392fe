//! The results: the table of the measurements, the picture with several charts, and the conclusion in
//! sentences: which store to choose, and why.

use std::{cmp::Ordering, error::Error, fmt::Write as _, path::Path, time::Duration};

use dlock::guarantees::{Exclusion, Fencing, OrphanRelease, Scope, WakeUp};
use dlock_testlab::Stop;
use plotters::{
    coord::{Shift, ranged1d::SegmentValue},
    prelude::{
        ChartBuilder, DrawingArea, Histogram, IntoDrawingArea, IntoSegmentedCoord, SVGBackend,
    },
    style::{BLUE, Color, WHITE},
};

use crate::{
    args::Args,
    figures::{Figures, Restart},
};

type Row = (&'static str, fn(&Figures) -> String);

const ROWS: [Row; 11] = [
    ("lock and release, p50", |f| time(f.speed.p50)),
    ("lock and release, p99", |f| time(f.speed.p99)),
    ("hand-offs a second", |f| format!("{:.0}", f.speed.hand_offs)),
    ("a waiter is woken by", |f| f.speed.guarantees.wake_up.to_string()),
    ("holder killed: next has it", |f| time(f.faults.orphan)),
    ("holder cut off: it knows", |f| f.faults.cut.map_or_else(none, |cut| time(cut.told))),
    ("holder cut off: next has it", |f| f.faults.cut.map_or_else(none, |cut| time(cut.passed))),
    ("server killed: it is up again", |f| f.faults.restart.map_or_else(none, |r| time(r.up))),
    ("server killed: it answers", |f| f.faults.restart.map_or_else(none, |r| time(r.away))),
    ("server killed: still held", |f| {
        f.faults.restart.map_or_else(none, |r| if r.second.is_none() { "yes" } else { "no" }.into())
    }),
    ("reaches", |f| f.speed.guarantees.scope.to_string()),
];

/// Returns a table with a line for each measurement and a column for each store.
pub(crate) fn table(all: &[Figures]) -> String {
    let mut text = format!("{:30}", "");
    for figures in all {
        let _ = write!(text, "{:>14}", figures.name);
    }
    text.push('\n');
    for (what, cell) in ROWS {
        let _ = write!(text, "{what:30}");
        for figures in all {
            let _ = write!(text, "{:>14}", cell(figures));
        }
        text.push('\n');
    }
    text
}

/// Formats a time for people.
pub(crate) fn time(time: Duration) -> String {
    match time {
        time if time >= Duration::from_secs(1) => format!("{:.2} s", time.as_secs_f64()),
        time if time >= Duration::from_millis(10) => format!("{} ms", time.as_millis()),
        time => format!("{:.2} ms", time.as_secs_f64() * 1e3),
    }
}

fn none() -> String {
    "-".to_owned()
}

type Drawn = Result<(), Box<dyn Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const SIZE: (u32, u32) = (1200, 1000);

/// The bars of each store: the whole bar is light, and the part in `dark` is dark.
struct Bars<'a> {
    title: &'a str,
    light: Vec<f64>,
    dark: Vec<f64>,
}

/// Draws the picture.
pub(crate) fn draw(all: &[Figures], file: &Path) -> Result<(), Stop> {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let cut = |f: &Figures| f.faults.cut.map(|cut| (cut.passed, cut.told)).unwrap_or_default();
    let of = |figure: &dyn Fn(&Figures) -> f64| all.iter().map(figure).collect::<Vec<_>>();
    let charts = [
        Bars {
            title: "lock and release: ms (dark: p50, light: p99)",
            light: of(&|f| ms(f.speed.p99)),
            dark: of(&|f| ms(f.speed.p50)),
        },
        Bars {
            title: "contended: hand-offs a second",
            light: Vec::new(),
            dark: of(&|f| f.speed.hand_offs),
        },
        Bars {
            title: "holder cut off: s (dark: it knows, light: next has it)",
            light: of(&|f| cut(f).0.as_secs_f64()),
            dark: of(&|f| cut(f).1.as_secs_f64()),
        },
        Bars {
            title: "holder killed: s until the next has the lock",
            light: Vec::new(),
            dark: of(&|f| f.faults.orphan.as_secs_f64()),
        },
        Bars {
            title: "server killed: s until it answers again",
            light: Vec::new(),
            dark: of(&|f| f.faults.restart.map_or(0.0, |restart| restart.away.as_secs_f64())),
        },
    ];
    let names: Vec<&str> = all.iter().map(|f| f.name.as_str()).collect();
    let paint = || -> Drawn {
        let whole = SVGBackend::new(file, SIZE).into_drawing_area();
        whole.fill(&WHITE)?;
        for (area, bars) in whole.split_evenly((3, 2)).iter().zip(&charts) {
            bars.draw(area, &names)?;
        }
        whole.present()?;
        Ok(())
    };
    paint().map_err(|error| Stop::failed(format!("{}: {error}", file.display())))
}

impl Bars<'_> {
    fn draw(&self, area: &Area<'_>, names: &[&str]) -> Drawn {
        let top = self.light.iter().chain(&self.dark).copied().fold(0.001, f64::max) * 1.1;
        let mut chart = ChartBuilder::on(area)
            .caption(self.title, ("sans-serif", 15))
            .margin(12)
            .x_label_area_size(30)
            .y_label_area_size(52)
            .build_cartesian_2d((0..names.len()).into_segmented(), 0.0..top)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(WHITE)
            .x_label_formatter(&|at| match at {
                SegmentValue::CenterOf(at) => names.get(*at).copied().unwrap_or("").to_owned(),
                _ => String::new(),
            })
            .draw()?;
        for (values, style) in
            [(&self.light, BLUE.mix(0.3).filled()), (&self.dark, BLUE.mix(0.8).filled())]
        {
            let bars = values.iter().copied().enumerate();
            chart.draw_series(Histogram::vertical(&chart).style(style).margin(14).data(bars))?;
        }
        Ok(())
    }
}

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
             hands off most often.",
            strict.name
        ));
    }
    match (quick, strict) {
        (Some(quick), Some(strict)) if quick.name != strict.name => sentences.push(format!(
            "Choose {} where speed counts and the resource checks tokens, or where two at once cost \
             time and no data: it hands off {:.1} times as often as {}.",
            quick.name,
            quick.speed.hand_offs / strict.speed.hand_offs,
            strict.name
        )),
        (Some(quick), _) => {
            sentences.push(format!("Choose {} for speed: it hands off most often.", quick.name));
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
