//! The command line of `compare`.

use std::{path::PathBuf, time::Duration};

use lexopt::{Arg, Parser, ValueExt};

use crate::{
    Failure,
    crew::peers::{PEERS, Peer},
    own::Flavour,
    scenario,
    store::{Disk, Members, Setup, Store},
};

/// The selection of what to compare, and the length of the run.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) stores: Vec<Store>,
    /// The names of scenarios, or of their families; empty for all.
    pub(crate) scenarios: Vec<String>,
    pub(crate) peers: Vec<Peer>,
    pub(crate) quick: bool,
    /// The length of a contestant's round.
    pub(crate) lasts: Duration,
    pub(crate) rounds: usize,
    pub(crate) places: Places,
    pub(crate) setup: Setup,
    pub(crate) flavour: Flavour,
    pub(crate) report: Option<PathBuf>,
    pub(crate) ends_with: EndsWith,
    /// The file in which the ratios are recorded.
    pub(crate) record: Option<PathBuf>,
    /// The file with the recorded ratios that are compared.
    pub(crate) check: Option<PathBuf>,
}

/// The rounds of a run whose ratios are recorded, and of one that is compared with them. If both have
/// the same distribution, all rounds of the second are worse than all rounds of the first in one of
/// 15,504 cases.
const RECORDED_ROUNDS: usize = 15;
const CHECKED_ROUNDS: usize = 5;

/// The placement of processes on processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Places {
    /// By the system, as for a user.
    Any,
    /// By this program: the server has one processor, and its clients have the others.
    Chosen,
}

/// The meaning of the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndsWith {
    /// Zero if everything was measured.
    Success,
    /// Zero if all targets were met.
    Targets,
}

/// The action that the command line asks for.
#[derive(Debug)]
pub(crate) enum Asked {
    /// Compare.
    Compare(Options),
    /// List the stores, scenarios and peers.
    List,
    /// Print the help.
    Help,
}

impl Options {
    /// Parses the arguments after the word `compare`.
    pub(crate) fn parse(mut parser: Parser) -> Result<Asked, Failure> {
        let (mut stores, mut scenarios, mut peers) = (Vec::new(), Vec::new(), Vec::new());
        let (mut quick, mut seconds, mut rounds, mut report) = (false, None, None, None);
        let (mut places, mut disk) = (Places::Any, Disk::Waited);
        let mut members = Members::One;
        let (mut record, mut check) = (None, None);
        let (mut flavour, mut ends_with) = (Flavour::CurrentThread, EndsWith::Success);
        while let Some(arg) = parser.next()? {
            match arg {
                Arg::Long("store") => stores.push(store(&parser.value()?.string()?)?),
                Arg::Long("scenario") => scenarios.push(parser.value()?.string()?),
                Arg::Long("peers") => peers.push(parser.value()?.string()?),
                Arg::Long("seconds") => seconds = Some(parser.value()?.parse::<f64>()?),
                Arg::Long("rounds") => rounds = Some(parser.value()?.parse::<usize>()?),
                Arg::Long("report") => report = Some(PathBuf::from(parser.value()?)),
                Arg::Long("quick") => quick = true,
                Arg::Long("pin") => places = Places::Chosen,
                Arg::Long("no-disk") => disk = Disk::NotWaited,
                Arg::Long("three-members") => members = Members::Three,
                Arg::Long("two-threads") => flavour = Flavour::TwoWorkers,
                Arg::Long("targets") => ends_with = EndsWith::Targets,
                Arg::Long("record") => record = Some(PathBuf::from(parser.value()?)),
                Arg::Long("check") => check = Some(PathBuf::from(parser.value()?)),
                Arg::Long("list") => return Ok(Asked::List),
                Arg::Long("help") | Arg::Short('h') => return Ok(Asked::Help),
                other => return Err(other.unexpected().into()),
            }
        }
        if stores.is_empty() {
            stores = Store::ALL.to_vec();
        }
        let known = scenario::all();
        if let Some(name) =
            scenarios.iter().find(|name| !known.iter().any(|s| is(&s.profile().name, name)))
        {
            let known: Vec<_> = known.iter().map(|scenario| scenario.profile().name).collect();
            return Err(format!("no scenario {name}: there are {}", known.join(", ")).into());
        }
        let lasts = seconds.unwrap_or(if quick { 0.1 } else { 0.5 });
        let lasts = Duration::try_from_secs_f64(lasts)?.max(Duration::from_millis(10));
        let usual = match (&record, &check) {
            (Some(_), _) => RECORDED_ROUNDS,
            (None, Some(_)) => CHECKED_ROUNDS,
            (None, None) if quick => 2,
            (None, None) => 5,
        };
        let rounds = rounds.unwrap_or(usual).max(1);
        let peers = peers_of(&peers)?;
        Ok(Asked::Compare(Self {
            stores,
            scenarios,
            peers,
            quick,
            lasts,
            rounds,
            places,
            setup: Setup { disk, members },
            flavour,
            report,
            ends_with,
            record,
            check,
        }))
    }

    /// Whether this scenario is selected.
    pub(crate) fn wants(&self, scenario: &str) -> bool {
        self.scenarios.is_empty() || self.scenarios.iter().any(|name| is(scenario, name))
    }
}

/// Whether a scenario, or its family, has this name.
fn is(scenario: &str, name: &str) -> bool {
    scenario == name || scenario.strip_prefix(name).is_some_and(|rest| rest.starts_with('-'))
}

fn store(name: &str) -> Result<Store, Failure> {
    let known = Store::ALL.map(Store::name).join(", ");
    let found = Store::ALL.into_iter().find(|store| store.name() == name);
    found.ok_or_else(|| format!("no store {name}: there are {known}").into())
}

fn peers_of(names: &[String]) -> Result<Vec<Peer>, Failure> {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    match names[..] {
        [] | ["all"] => return Ok(PEERS.to_vec()),
        ["none"] => return Ok(Vec::new()),
        _ => {}
    }
    let one = |name: &str| {
        let known = || PEERS.iter().map(|peer| peer.name).collect::<Vec<_>>().join(", ");
        let found = PEERS.iter().find(|peer| peer.name == name);
        found.copied().ok_or_else(|| format!("no peer {name}: there are {}", known()).into())
    };
    names.into_iter().map(one).collect()
}

/// The text of `--help`.
pub(crate) const HELP: &str = "\
Compares dlock with the bare drivers and with other locks, over servers of its
own: all take rounds in turns, in an order that is shuffled for each round.

Usage: dlock-bench [compare] [OPTIONS]

  --store NAME     over this store; can be repeated
  --scenario NAME  this scenario, or this family of scenarios; can be repeated
  --peers NAME     with this peer, with `all` (as by default) or `none`
  --quick          fewer and shorter rounds: sooner, less certain
  --seconds S      how long a round of each contestant lasts (0.5)
  --rounds N       how many rounds there are (5)
  --pin            the server on a processor of its own, the clients on the others
  --no-disk        servers that don't wait for their disk
  --three-members  etcd with three members; clients connect to its leader
  --two-threads    two threads for the tasks of each client instead of one
  --report DIR     writes results.json, results.md and plots into a directory
  --targets        exit with 1 when a target is missed
  --record FILE    keeps the ratios of this processor in a file (15 rounds)
  --check FILE     compares them with those of the file (5 rounds); exits with 1
                   when one is worse, with 3 when the file has none of this
                   processor
  --list           what stores, scenarios and peers there are
  --help           this text
";

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Options, Failure> {
        match Options::parse(Parser::from_args(words))? {
            Asked::Compare(options) => Ok(options),
            other => Err(format!("{other:?}").into()),
        }
    }

    #[test]
    fn everything_is_compared_by_default() {
        let options = parse(&[]).unwrap();
        assert_eq!(options.stores.len(), 7);
        assert_eq!(options.peers.len(), PEERS.len());
        assert!(scenario::all().iter().all(|scenario| options.wants(&scenario.profile().name)));
    }

    #[test]
    fn a_family_is_all_of_its_scenarios() {
        let options = parse(&["--scenario", "crowd", "--scenario", "many-64"]).unwrap();
        let names = scenario::all().into_iter().map(|scenario| scenario.profile().name);
        let names: Vec<_> = names.filter(|name| options.wants(name)).collect();
        assert_eq!(names, ["many-64", "crowd-8", "crowd-64", "crowd-512"]);
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        assert!(parse(&["--store", "consul"]).unwrap_err().to_string().contains("redis"));
        assert!(parse(&["--scenario", "cro"]).unwrap_err().to_string().contains("crowd-8"));
        assert!(parse(&["--peers", "redisson"]).unwrap_err().to_string().contains("rslock"));
        assert_eq!(parse(&["--peers", "none"]).unwrap().peers.len(), 0);
    }
}
