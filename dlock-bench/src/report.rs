//! The table: what was measured, and whether it is good enough.

use std::{io::Write, process::ExitCode};

/// Prints a line for each figure as it comes, and remembers what was missed.
#[derive(Debug, Default)]
pub(crate) struct Report {
    begun: bool,
    missed: usize,
}

/// One thing, measured of the floor and of dlock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) floor: f64,
    pub(crate) dlock: f64,
    pub(crate) unit: &'static str,
}

impl Pair {
    fn ratio(self) -> f64 {
        self.dlock / self.floor
    }
}

impl Report {
    /// What all of it is about.
    pub(crate) fn heading(&mut self, heading: &str) {
        say(&format!("{heading}\n"));
    }

    /// What the lines that follow are about.
    pub(crate) fn title(&mut self, title: &str) {
        if !self.begun {
            say(&row("", ["floor", "dlock", "ratio", "target"], ""));
        }
        self.begun = true;
        say(&format!("\n{title}"));
    }

    /// What the lines that follow are about, within the same.
    pub(crate) fn part(&mut self, part: &str) {
        say(&format!(" {part}:"));
    }

    /// A ratio to the floor that must not be larger.
    pub(crate) fn ratio_at_most(&mut self, what: &str, pair: Pair, target: f64) {
        self.pair(what, pair, Some(("<=", target, pair.ratio() <= target)));
    }

    /// A ratio to the floor that must not be smaller.
    pub(crate) fn ratio_at_least(&mut self, what: &str, pair: Pair, target: f64) {
        self.pair(what, pair, Some((">=", target, pair.ratio() >= target)));
    }

    /// A ratio to the floor that has no target.
    pub(crate) fn ratio(&mut self, what: &str, pair: Pair) {
        self.pair(what, pair, None);
    }

    /// A figure of dlock alone that must not be larger.
    pub(crate) fn at_most(&mut self, what: &str, measured: f64, unit: &str, target: f64) {
        self.single(what, measured, unit, Some(("<=", target, measured <= target)));
    }

    /// A figure of dlock alone that must not be smaller.
    pub(crate) fn at_least(&mut self, what: &str, measured: f64, unit: &str, target: f64) {
        self.single(what, measured, unit, Some((">=", target, measured >= target)));
    }

    /// A count that must be this, but for the `slack` that beginning and end of a run bring in.
    pub(crate) fn exactly(&mut self, what: &str, measured: f64, target: f64, slack: f64) {
        let ok = (measured - target).abs() <= slack;
        self.single(what, measured, "", Some(("=", target, ok)));
    }

    /// A figure of dlock alone that has no target.
    pub(crate) fn note(&mut self, what: &str, measured: f64, unit: &str) {
        self.single(what, measured, unit, None);
    }

    /// The exit code: failure when a target was missed.
    pub(crate) fn verdict(&self) -> ExitCode {
        match self.missed {
            0 => {
                say("\nall targets met");
                ExitCode::SUCCESS
            }
            missed => {
                say(&format!("\ntargets missed: {missed}"));
                ExitCode::FAILURE
            }
        }
    }

    fn pair(&mut self, what: &str, pair: Pair, target: Option<Target<'_>>) {
        let (floor, dlock) = (short(pair.floor, pair.unit), short(pair.dlock, pair.unit));
        self.line(what, [&floor, &dlock, &short(pair.ratio(), "x")], "x", target);
    }

    fn single(&mut self, what: &str, measured: f64, unit: &str, target: Option<Target<'_>>) {
        self.line(what, ["", &short(measured, unit), ""], unit, target);
    }

    fn line(&mut self, what: &str, cells: [&str; 3], unit: &str, target: Option<Target<'_>>) {
        let (target, verdict) = match target {
            // A figure that could not be taken is no number, and is never good enough.
            Some((sign, target, ok)) => {
                self.missed += usize::from(!ok);
                let verdict = if ok { "ok" } else { "MISSED" };
                (format!("{sign} {}", short(target, unit)), verdict)
            }
            None => (String::new(), ""),
        };
        let [floor, dlock, ratio] = cells;
        say(&row(&format!("  {what}"), [floor, dlock, ratio, &target], verdict));
    }
}

/// Sign, value, and whether it is met.
type Target<'a> = (&'a str, f64, bool);

fn row(what: &str, [floor, dlock, ratio, target]: [&str; 4], verdict: &str) -> String {
    let row = format!("{what:<58}{floor:>10}{dlock:>10}{ratio:>9}{target:>11}  {verdict}");
    row.trim_end().to_owned()
}

/// Prints a line at once, also into a pipe. That nobody reads it is no reason to stop.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// As many digits as tell something.
fn short(value: f64, unit: &str) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}{unit}"),
        size if size >= 100.0 => format!("{value:.1}{unit}"),
        _ => format!("{value:.2}{unit}"),
    }
}
