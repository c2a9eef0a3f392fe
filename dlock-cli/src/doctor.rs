//! `dlock doctor`: checks whether a store is fit for locks, and prints remedies.

use std::time::Duration;

use clap::Args;
use dlock::{
    ConnectOptions, Error, ErrorKind, FencingToken, LockName, Locks,
    admin::{ClaimId, Finding, Level},
    backend::Clock,
    error::ConfigIssue,
    guarantees::{Fencing, Guarantees},
};
use serde::Serialize;

use crate::{
    failure::{Failure, code},
    guarantees, output, parse,
    store::{self, Store},
};

/// Check whether a store is fit for locks.
///
/// Connects, examines the settings of the store, takes and releases a lock with a random name below
/// `dlock-doctor/`, and shows the guarantees of the store. Each finding that is not fine comes with
/// a remedy. The name stays in the store no longer than the last token of any other name.
///
/// Before a change of the store, `--token N` checks whether the tokens of the new store are larger
/// than N, the largest token that any resource has seen. If they are not, the finding names the
/// offset to set.
///
/// With --json it prints one object: store, findings (level: fine, warning or wrong; about, found,
/// remedy), round_trip_ms, and guarantees as `guarantees` prints them.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  dlock doctor\n  dlock doctor --strict --json\n  dlock doctor --token 4021000000"
)]
pub(crate) struct Doctor {
    /// Exit with code 1 if there is a warning, too
    #[arg(long)]
    strict: bool,

    /// Check whether this store's tokens are larger than N, a token that a resource has seen
    #[arg(long, value_name = "N", value_parser = parse::token, allow_negative_numbers = true)]
    token: Option<FencingToken>,

    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// The result of the checks.
#[derive(Default)]
struct Report {
    store: Option<String>,
    findings: Vec<Finding>,
    round_trip: Option<Duration>,
    guarantees: Option<Guarantees>,
}

#[derive(Serialize)]
struct ReportView<'a> {
    store: Option<&'a str>,
    findings: Vec<FindingView<'a>>,
    round_trip_ms: Option<f64>,
    guarantees: Option<guarantees::View>,
}

#[derive(Serialize)]
struct FindingView<'a> {
    level: &'static str,
    about: &'a str,
    found: &'a str,
    remedy: Option<&'a str>,
}

pub(crate) async fn run(args: Doctor, store: &Store) -> Result<u8, Failure> {
    let source = store.source()?;
    let began = Clock::Boot.now();
    let mut report = Report::default();
    let limit = store::CONNECT_TIMEOUT;
    match store
        .try_connect(source.url(), ConnectOptions::new(), limit, store::print_unreachable)
        .await
    {
        Ok(Ok(locks)) => {
            let took = Clock::Boot.now().since(began);
            report.findings.push(Finding::fine("connection", format!("connected in {took:.1?}")));
            report.examine(&locks, args.token).await;
            store::close(&locks).await;
        }
        Ok(Err(error)) if is_misuse(error.kind()) => return Err(error.into()),
        Ok(Err(error)) => report.findings.push(as_finding("connection", &error)),
        Err(failure) if failure.code == code::UNAVAILABLE => report.findings.push(Finding::wrong(
            "connection",
            failure.text(),
            "check that the store runs, and that address and port are right",
        )),
        Err(failure) => return Err(failure),
    }
    if args.json {
        output::print_json(&report.view())?
    } else {
        output::print(&report.text())?
    }
    let bad = if args.strict { Level::Warning } else { Level::Wrong };
    let worst = report.findings.iter().map(|finding| finding.level).max();
    Ok(if worst >= Some(bad) { code::NO } else { 0 })
}

impl Report {
    async fn examine(&mut self, locks: &Locks, seen: Option<FencingToken>) {
        self.store = Some(locks.backend().store().to_owned());
        match locks.examine().await {
            Ok(findings) => self.findings.extend(findings),
            Err(error) => self.findings.push(as_finding("examination", &error)),
        }
        let (findings, round_trip) = probe(locks).await;
        self.findings.extend(findings);
        if let Some(seen) = seen {
            let examined = locks.examine_token(seen).await;
            self.findings.push(examined.unwrap_or_else(|error| as_finding("seen token", &error)));
        }
        self.round_trip = round_trip;
        self.guarantees = Some(locks.guarantees());
    }

    fn text(&self) -> String {
        let mut text = self.store.as_ref().map_or(String::new(), |store| format!("{store}\n\n"));
        let row = |finding: &Finding| {
            vec![word(finding.level).to_owned(), finding.about.to_owned(), finding.found.clone()]
        };
        let rows: Vec<_> = self.findings.iter().map(row).collect();
        // A remedy is printed below its finding.
        for (line, finding) in output::table(&rows).lines().zip(&self.findings) {
            text += &format!("{line}\n");
            if let Some(remedy) = &finding.remedy {
                text += &format!("         -> {remedy}\n");
            }
        }
        if let Some(given) = &self.guarantees {
            text += &format!("\n{}", guarantees::text(given));
        }
        text
    }

    fn view(&self) -> ReportView<'_> {
        let findings = self.findings.iter().map(|finding| FindingView {
            level: word(finding.level),
            about: finding.about,
            found: &finding.found,
            remedy: finding.remedy.as_deref(),
        });
        ReportView {
            store: self.store.as_deref(),
            findings: findings.collect(),
            round_trip_ms: self.round_trip.map(|time| time.as_secs_f64() * 1000.0),
            guarantees: self.guarantees.as_ref().map(guarantees::View::new),
        }
    }
}

fn word(level: Level) -> &'static str {
    match level {
        Level::Fine => "fine",
        Level::Warning => "warning",
        _ => "wrong",
    }
}

/// Returns an error as a finding. The text after its last colon is the remedy.
fn as_finding(about: &'static str, error: &dlock::Error) -> Finding {
    let text = error.to_string();
    let remedy = last_colon(&text).and_then(|at| text.split_at_checked(at));
    match remedy.and_then(|(found, rest)| Some((found, rest.strip_prefix(": ")?))) {
        Some((found, remedy)) => Finding::wrong(about, found, remedy),
        None => Finding::wrong(about, text, "check that the store runs and is set up for dlock"),
    }
}

/// Returns the position of the last colon outside of parentheses, which contain the driver's text.
fn last_colon(text: &str) -> Option<usize> {
    let (mut depth, mut last) = (0_usize, None);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ':' if depth == 0 && text[at..].starts_with(": ") => last = Some(at),
            _ => {}
        }
    }
    last
}

/// Whether the remedy is a change of the URL and not of the store.
fn is_misuse(kind: ErrorKind) -> bool {
    use ConfigIssue as Is;
    let ErrorKind::Config(issue) = kind else { return false };
    matches!(
        issue,
        Is::Url
            | Is::UnknownScheme
            | Is::MissingFeature
            | Is::UnknownOption
            | Is::RepeatedOption
            | Is::OptionValue
            | Is::Lease
            | Is::Name
    )
}

/// The longest wait for a lock whose name no other client knows.
const WAIT: Duration = Duration::from_secs(10);

/// The number of times that the lock is acquired. The first time may open connections, and is not
/// measured.
const TIMES: usize = 5;

/// A renewal that takes longer than this fraction of a lease leaves little time for retries.
const PART_OF_LEASE: u32 = 30;

/// Returns the findings of acquiring and releasing a lock, and the time of a round trip.
async fn probe(locks: &Locks) -> (Vec<Finding>, Option<Duration>) {
    match Probe::run(locks).await {
        Ok(probe) => {
            let findings = vec![probe.trip(locks), probe.tokens(locks), probe.left()];
            (findings, Some(probe.round_trip))
        }
        Err(error) => (vec![as_finding("probe", &error)], None),
    }
}

struct Probe {
    round_trip: Duration,
    tokens: Vec<FencingToken>,
    /// The number of holders that the store reported while the lock was held.
    seen: usize,
    free_after: bool,
}

impl Probe {
    async fn run(locks: &Locks) -> Result<Self, Error> {
        let name = LockName::new(&format!("dlock-doctor/{}", ClaimId::random()))?;
        // Without local hand-off, so that each acquire goes to the store.
        let locks = locks.without_handoff();
        let mutex = locks.mutex(&name)?;
        let (mut tokens, mut times, mut seen) = (Vec::new(), Vec::new(), 0);
        for _ in 0..TIMES {
            let began = Clock::Boot.now();
            let guard = mutex.lock_timeout(WAIT).await?;
            let taken = Clock::Boot.now().since(began);
            tokens.push(guard.token());
            seen = locks.inspect(&name).await?.holders.len();
            let began = Clock::Boot.now();
            guard.release().await?;
            times.push((taken + Clock::Boot.now().since(began)) / 2);
        }
        let free_after = locks.inspect(&name).await?.is_free();
        times.remove(0);
        times.sort_unstable();
        let round_trip = times.get(times.len() / 2).copied().unwrap_or_default();
        Ok(Self { round_trip, tokens, seen, free_after })
    }

    fn trip(&self, locks: &Locks) -> Finding {
        let (trip, lease) = (self.round_trip, locks.options().lease());
        let found = format!("acquiring or releasing a lock takes {trip:.1?}");
        if trip > lease / PART_OF_LEASE {
            return Finding::warning(
                "round trip",
                format!("{found}, with leases of {lease:?}"),
                "use a store that is nearer or less busy, or longer leases (dlock.lease in the \
                 URL)",
            );
        }
        Finding::fine("round trip", found)
    }

    fn tokens(&self, locks: &Locks) -> Finding {
        let Some(last) = self.tokens.last() else {
            return Finding::wrong(
                "tokens",
                "the store issued none",
                "report this to the authors of the backend",
            );
        };
        if locks.guarantees().fencing == Fencing::None {
            return Finding::warning(
                "tokens",
                "this store has no fencing tokens that a resource can compare",
                "use dlock's own tables or keys, or do not rely on DLOCK_TOKEN",
            );
        }
        if self.tokens.is_sorted_by(|before, after| before < after) {
            return Finding::fine("tokens", format!("they grow; the last was {last}"));
        }
        Finding::wrong(
            "tokens",
            format!("they do not grow: {:?}", self.tokens),
            "check that no other program changes dlock's data, and that the URL leads to one store \
             only",
        )
    }

    fn left(&self) -> Finding {
        match (self.seen, self.free_after) {
            (1, true) => {
                Finding::fine("lock", "it was seen while held, and free after its release")
            }
            (1, false) => Finding::wrong(
                "lock",
                "it was released, but the store still shows it",
                "check that reads do not go to a replica that lags behind",
            ),
            (seen, _) => Finding::wrong(
                "lock",
                format!("it had one holder, but the store shows {seen}"),
                "check that reads do not go to a replica that lags behind",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remedy_stands_below_its_finding() {
        let findings = vec![
            Finding::fine("version", "7.2"),
            Finding::warning("clock", "is stepped", "use a clock that is slewed"),
        ];
        let report = Report { findings, ..Report::default() };
        assert_eq!(
            report.text(),
            "fine     version  7.2\n\
             warning  clock    is stepped\n         -> use a clock that is slewed\n"
        );
    }

    #[test]
    fn an_error_is_split_into_finding_and_remedy() {
        let error = dlock::Error::new(ErrorKind::Unavailable, "it is away: start it");
        let finding = as_finding("connection", &error);
        assert_eq!((finding.found.as_str(), finding.level), ("it is away", Level::Wrong));
        assert_eq!(finding.remedy.as_deref(), Some("start it"));
        let error = dlock::Error::new(ErrorKind::Unavailable, "it is away: start it (x: y)");
        assert_eq!(as_finding("connection", &error).remedy.as_deref(), Some("start it (x: y)"));
    }
}
