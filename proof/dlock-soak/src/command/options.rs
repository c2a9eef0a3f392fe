//! The command line.

use std::{path::PathBuf, time::Duration};

use dlock_core::{DynBackend, Error, Memory, Registry};
use dlock_testkit::Stop;
use futures_util::future::BoxFuture;
use lexopt::{Arg, Parser, ValueExt};

use crate::{
    fault::Fault,
    setups::{FEW, FaultRows, HOLDERS, SETUPS, Setup, faults},
    topology::{Plain, Topology},
};

/// The options of a run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Options {
    pub(super) places: Vec<StoreArg>,
    /// The time for all stores one after another, without the time to start them.
    pub(super) time: Duration,
    /// The directory of the report.
    pub(super) report: Option<PathBuf>,
    /// Whether other work runs on the machine.
    pub(super) busy: bool,
    /// The number of stores that run at the same time.
    pub(super) jobs: usize,
    /// The command of an older version, which half of the processes run.
    pub(super) old: Option<PathBuf>,
    /// Whether all histories are kept, and not only those with violations.
    pub(super) keep: bool,
}

/// A store, as the command line names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StoreArg {
    /// A private store that is started for the run.
    Private(&'static Setup),
    /// An existing store; faults are injected into its holders only.
    Given(String),
}

/// The request of the command line.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Asked {
    Run(Options),
    /// Judges a recorded history.
    Judge(PathBuf),
    Help,
    List,
}

/// The shortest time for one store. It leaves time for faults between the phases without faults.
const SHORTEST: Duration = Duration::from_secs(30);

pub(super) const HELP: &str = "\
Injects faults into stores and their clients, and checks that dlock keeps its promises.

Usage: dlock-soak --url URL [--url URL ...] [--minutes N] [--report DIR]

Options:
  --url URL        a private store, such as private:redis (see --list), or the URL of a running
                   store, where only the clients get faults; private:all for all private stores
  --minutes N      the total time, which all stores share equally [default: 1 for each store]
  --report DIR     writes report.md, report.json, plots (SVG), and the histories of failed rounds
  --keep           also writes the histories of rounds that passed
  --busy           other work runs on this machine: a late notification is reported, but does not
                   fail the run
  --jobs N         tests N stores at the same time [default: 1]
  --with-old BIN   runs BIN, the dlock-soak of an older version, in every second process: see
                   scripts/old-build
  --judge FILE     checks a recorded history (DIR/NAME.jsonl) again, without faults
  --list           lists the private stores
  --help           prints this help

Exit status: 0 every promise was kept (pass), 1 a promise was broken (fail), 2 usage error, 3 too
little happened for a verdict (unknown).
";

impl Asked {
    /// Parses the arguments of this process.
    ///
    /// # Errors
    /// A text with the invalid argument and a remedy.
    pub(super) fn read(mut parser: Parser) -> Result<Self, String> {
        let (mut places, mut minutes, mut report) = (Vec::new(), None, None);
        let (mut jobs, mut keep, mut busy, mut old) = (1, false, false, None);
        let text = |error: lexopt::Error| error.to_string();
        while let Some(arg) = parser.next().map_err(text)? {
            match arg {
                Arg::Long("url") => {
                    let url = parser.value().and_then(|url| url.string()).map_err(text)?;
                    match url.as_str() {
                        "private:all" => places.extend(SETUPS.iter().map(StoreArg::Private)),
                        url => places.push(StoreArg::parse(url)?),
                    }
                }
                Arg::Long("minutes") => {
                    minutes = Some(parser.value().and_then(|n| n.parse::<f64>()).map_err(text)?);
                }
                Arg::Long("report") => {
                    report = Some(PathBuf::from(parser.value().map_err(text)?));
                }
                Arg::Long("jobs") => {
                    jobs = parser.value().and_then(|n| n.parse::<usize>()).map_err(text)?;
                }
                Arg::Long("keep") => keep = true,
                Arg::Long("busy") => busy = true,
                Arg::Long("with-old") => {
                    old = Some(program(parser.value().map_err(text)?.into())?);
                }
                Arg::Long("judge") => {
                    return Ok(Self::Judge(parser.value().map_err(text)?.into()));
                }
                Arg::Long("list") => return Ok(Self::List),
                Arg::Long("help") | Arg::Short('h') => return Ok(Self::Help),
                arg => return Err(format!("{}: see --help", arg.unexpected())),
            }
        }
        if places.is_empty() {
            return Err("no store is named: give --url private:redis, or see --list".to_owned());
        }
        if jobs == 0 {
            return Err("--jobs 0 does nothing: give 1 or more".to_owned());
        }
        let count = u32::try_from(places.len()).unwrap_or(u32::MAX);
        let time = match minutes {
            None => Duration::from_secs(60).saturating_mul(count),
            Some(minutes) => Duration::try_from_secs_f64(minutes * 60.0)
                .map_err(|_| format!("--minutes {minutes} is no time: give a number above 0"))?,
        };
        if time / count < SHORTEST {
            return Err(format!(
                "{time:?} for {count} stores is too little for a verdict: give each {SHORTEST:?} \
                 or more"
            ));
        }
        Ok(Self::Run(Options { places, time, report, jobs, old, keep, busy }))
    }
}

impl StoreArg {
    /// Parses `private:NAME` or a URL.
    ///
    /// # Errors
    /// A text with the names that exist.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let Some(name) = text.strip_prefix("private:") else {
            return match text.contains(':') {
                true => Ok(Self::Given(text.to_owned())),
                false => Err(format!(
                    "{text:?} is no URL: use private:NAME for a private store, or the URL of one \
                     that is there"
                )),
            };
        };
        let found = SETUPS.iter().find(|setup| setup.name == name);
        found.map(Self::Private).ok_or_else(|| {
            let names: Vec<_> = SETUPS.iter().map(|setup| setup.name).collect();
            format!("there is no private store {name:?}: use one of {}", names.join(", "))
        })
    }

    /// Returns its name in reports. For an existing store this is the scheme, since the URL may
    /// contain secrets.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Private(setup) => setup.name,
            Self::Given(url) => url.split(':').next().unwrap_or_default(),
        }
    }

    /// Returns a description for people.
    pub(super) fn what(&self) -> &str {
        match self {
            Self::Private(setup) => setup.what,
            Self::Given(_) => "a store that was there, with faults of its holders only",
        }
    }

    /// Returns the smallest number of grants a minute for a verdict.
    pub(super) fn grants(&self) -> u32 {
        match self {
            Self::Private(setup) => setup.grants,
            Self::Given(_) => FEW,
        }
    }

    /// Returns its faults, and the promises that it keeps under them.
    pub(super) fn rows(&self) -> FaultRows {
        match self {
            Self::Private(setup) => setup.rows,
            Self::Given(_) => HOLDERS,
        }
    }

    /// Starts the store.
    ///
    /// # Errors
    /// [`Stop::missing`], if its programs are not installed.
    pub(super) async fn open(&self) -> Result<Box<dyn Topology>, Stop> {
        match self {
            Self::Private(setup) => {
                let faults: Vec<Fault> = faults(setup.rows).map(|(fault, _)| fault).collect();
                setup.open(&faults, &connect).await
            }
            Self::Given(url) => Ok(Box::new(Plain::given(url))),
        }
    }
}

/// Connects to a store of any kind.
pub(super) fn connect(url: String) -> BoxFuture<'static, Result<DynBackend, Error>> {
    Box::pin(async move {
        let registry = Registry::new()
            .with(Memory::FACTORY)
            .with(dlock_sql::SQLITE)
            .with(dlock_sql::POSTGRES)
            .with(dlock_sql::MYSQL)
            .with(dlock_redis::REDIS)
            .with(dlock_zk::ZK)
            .with(dlock_etcd::FACTORY);
        registry.connect(url.parse()?, &[]).await
    })
}

/// Returns the full path of a program.
fn program(path: PathBuf) -> Result<PathBuf, String> {
    match path.is_file() {
        // A path without a directory would be searched in PATH.
        true => path.canonicalize().map_err(|error| format!("{}: {error}", path.display())),
        false => Err(format!(
            "--with-old {} is no program: build one with scripts/old-build COMMIT",
            path.display()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(args: &[&str]) -> Result<Asked, String> {
        Asked::read(Parser::from_args(args))
    }

    #[test]
    fn options_are_read() {
        let asked = read(&["--url", "private:redis", "--url=private:zk", "--minutes", "3"]);
        let Ok(Asked::Run(options)) = asked else { panic!("{asked:?}") };
        assert_eq!(options.places.len(), 2);
        assert_eq!(options.time, Duration::from_secs(180));
        assert_eq!(read(&["--list", "--url"]), Ok(Asked::List));
        assert_eq!(read(&["--judge", "a.jsonl"]), Ok(Asked::Judge("a.jsonl".into())));
    }

    #[test]
    fn all_are_a_minute_each() {
        let Ok(Asked::Run(options)) = read(&["--url", "private:all"]) else { panic!() };
        assert_eq!(options.places.len(), SETUPS.len());
        assert_eq!(options.time, Duration::from_secs(60 * 16));
    }

    #[test]
    fn wrong_options_are_refused_with_the_right_ones() {
        for (args, says) in [
            (&[][..], "--list"),
            (&["--url", "private:oracle"], "one of memory"),
            (&["--url", "private:redis", "--minutes", "0.1"], "30s"),
            (&["--url", "private:redis", "--minutes", "-1"], "above 0"),
            (&["--url", "private:redis", "--jobs", "0"], "1 or more"),
            (&["--url", "private:redis", "--with-old", "/dev/null/x"], "scripts/old-build"),
            (&["--uri", "x"], "--help"),
        ] {
            let error = read(args).unwrap_err();
            assert!(error.contains(says), "{args:?}: {error}");
        }
    }

    #[test]
    fn names_are_read() {
        for setup in SETUPS {
            let place = StoreArg::parse(&format!("private:{}", setup.name));
            assert_eq!(place, Ok(StoreArg::Private(setup)));
        }
        let given = "redis://user:secret@host:6379";
        assert_eq!(StoreArg::parse(given).map(|place| place.name().to_owned()), Ok("redis".into()));
    }

    #[test]
    fn an_unknown_store_is_refused_with_the_known_ones() {
        let error = StoreArg::parse("private:oracle").unwrap_err();
        assert!(error.contains("redis-sentinel"), "{error}");
        assert!(StoreArg::parse("redis").unwrap_err().contains("private:NAME"));
    }
}
