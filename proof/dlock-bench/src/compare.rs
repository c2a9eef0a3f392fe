//! The comparison: dlock, the baselines and other locks, over each store and in each scenario, in
//! alternating rounds of one run.
//!
//! It measures what a user would see: by default the system places the processes, and the result is
//! the median round.

use std::{collections::BTreeMap, process::ExitCode, time::Duration};

use lexopt::Parser;
use rand::seq::SliceRandom;
use tokio::runtime::Runtime;

use crate::{
    Failure,
    crew::{
        contestant::Contestant,
        peers::{self, LeftOut, Peer},
        relays::Relays,
        team::{Figures, Team},
    },
    figures::{Figure, Spread},
    options::{Asked, EndsWith, HELP, Options, Places},
    own::Flavour,
    processors::{Awake, Placed},
    report::{
        self,
        record::{self, Record},
        results::{Entry, Part, Results},
        targets,
    },
    scenario::{self, Counter, Profile, Scenario},
    store::{Server, Store, Sweeps},
};

/// The word on the command line that selects it.
pub(crate) const WORD: &str = "compare";

/// The time for which a Java program runs before its rounds count, until Java has compiled its
/// code.
const WARM_UP: Duration = Duration::from_secs(4);

/// The exit code if there is nothing to compare with.
const UNKNOWN: u8 = 3;

/// The maximum length of a reason in the report, in characters.
const MOST_SAID: usize = 200;

/// Runs what the rest of the command line asks for.
pub(crate) fn compare(rest: Parser) -> Result<ExitCode, Failure> {
    let options = match Options::parse(rest)? {
        Asked::Compare(options) => options,
        Asked::List => {
            list();
            return Ok(ExitCode::SUCCESS);
        }
        Asked::Help => {
            print!("{HELP}");
            return Ok(ExitCode::SUCCESS);
        }
    };
    let setting = setting(&options);
    let recorded = match &options.check {
        None => None,
        Some(file) => match Record::read(file, &setting)? {
            Some(record) => Some(record),
            None => {
                println!("{}: {}", file.display(), record::NONE);
                return Ok(ExitCode::from(UNKNOWN));
            }
        },
    };
    let (peers, missing) = peers::ready(&options.peers, &options.stores);
    let mut results = run(&options, setting, &peers, missing)?;
    results.targets = targets::judge(&results.parts);
    report::end(&results, options.report.as_deref())?;
    if let Some(file) = &options.record {
        Record::of(&results).write(file)?;
    }
    let asked = |store, scenario: &str| options.stores.contains(&store) && options.wants(scenario);
    let is_as_recorded = recorded.is_none_or(|record| report::compared(&record, &results, asked));
    let missed = results.targets.iter().any(|verdict| !verdict.met);
    Ok(match options.ends_with {
        EndsWith::Targets if missed => ExitCode::FAILURE,
        _ if !is_as_recorded => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    })
}

fn list() {
    println!("stores: {}\n\nscenarios:", Store::ALL.map(Store::name).join(", "));
    for scenario in scenario::all() {
        let Profile { name, about, .. } = scenario.profile();
        println!("  {name:<28}{about}");
    }
    println!("\npeers:");
    for peer in peers::PEERS {
        println!("  {:<28}{}", peer.name, peer.store.name());
    }
}

/// Runs everything that the options ask for.
fn run(
    options: &Options,
    setting: BTreeMap<&'static str, String>,
    peers: &[Peer],
    missing: Vec<LeftOut>,
) -> Result<Results, Failure> {
    let versions = peers.iter().filter_map(|peer| peer.version()).collect();
    let mut results = Results { setting, missing, peers: versions, ..Results::default() };
    report::begin(&results);
    let runtime = Flavour::CurrentThread.start()?;
    for store in &options.stores {
        let server = runtime.block_on(Server::start(*store, options.setup, Sweeps::Seldom));
        let mut server = server.map_err(|failure| format!("{}: {failure}", store.name()))?;
        for scenario in scenario::all() {
            let Profile { name, about, main, is_long, .. } = scenario.profile();
            if !options.wants(&name) {
                continue;
            }
            let mut part = Part {
                store: *store,
                version: server.version.clone(),
                scenario: name,
                about,
                main,
                entries: Vec::new(),
                left_out: Vec::new(),
            };
            // A scenario that is named explicitly runs in a quick run too.
            if options.quick && is_long && options.scenarios.is_empty() {
                part.leave_out("all", "it takes too long for a quick run");
            } else {
                let race = Race { scenario: &*scenario, options, runtime: &runtime };
                race.run(&mut server, peers, &mut part)?;
            }
            report::part(&part);
            results.parts.push(part);
        }
    }
    Ok(results)
}

/// One scenario over one store.
struct Race<'a> {
    scenario: &'a dyn Scenario,
    options: &'a Options,
    runtime: &'a Runtime,
}

/// A contestant in the running scenario.
struct Runner {
    team: Team,
    rounds: BTreeMap<Figure, Vec<f64>>,
    is_baseline: bool,
}

impl Race<'_> {
    fn run(&self, server: &mut Server, peers: &[Peer], part: &mut Part) -> Result<(), Failure> {
        let baselines = match self.scenario.baselines(server.store) {
            Ok(baselines) => baselines,
            Err(reason) => {
                part.leave_out("all", reason);
                return Ok(());
            }
        };
        let _awake = if self.scenario.profile().is_awake { Some(Awake::keep()?) } else { None };
        let _placed = match (self.options.places, server.threads()) {
            (Places::Chosen, threads) if !threads.is_empty() => Some(Placed::keep(&threads)?),
            _ => None,
        };
        let mut contestants: Vec<_> =
            baselines.into_iter().map(|own| (Contestant::Own(own, ""), false)).collect();
        if let Some((_, is_baseline)) = contestants.first_mut() {
            *is_baseline = true;
        }
        contestants
            .extend(Contestant::dlocks(server.store).into_iter().map(|dlock| (dlock, false)));
        let peers = peers.iter().filter(|peer| peer.store == server.store);
        contestants.extend(peers.map(|peer| (Contestant::Peer(*peer), false)));

        let mut runners = Vec::new();
        for (contestant, is_baseline) in contestants {
            let name = contestant.name();
            match self.start(server, contestant) {
                Ok(team) => runners.push(Runner { team, rounds: BTreeMap::new(), is_baseline }),
                Err(failure) => part.leave_out(&name, &failure.to_string()),
            }
        }
        let mut order: Vec<usize> = (0..runners.len()).collect();
        for _ in 0..self.options.rounds {
            order.shuffle(&mut rand::rng());
            order.retain(|at| {
                let runner = &mut runners[*at];
                let round = self.scenario.round(&mut runner.team, self.options.lasts);
                runner.note(round, part)
            });
        }
        order.sort_unstable();
        for at in order {
            let runner = &mut runners[at];
            let mut counter = Counter {
                server,
                runtime: self.runtime,
                setup: self.options.setup,
                flavour: self.options.flavour,
            };
            let lasts = self.options.lasts;
            let counted = self.scenario.count(&mut runner.team, &mut counter, lasts);
            runner.note(counted, part);
        }
        part.entries = entries(&runners);
        Ok(())
    }

    /// Starts the processes of a contestant and runs a warm-up round. The error is the reason why
    /// the contestant can't take part.
    fn start(&self, server: &Server, contestant: Contestant) -> Result<Team, Failure> {
        if let Some(reason) = self.scenario.rules_out(&contestant) {
            return Err(reason.into());
        }
        let size = self.scenario.processes(server.store, &contestant);
        let relays = self.scenario.delay().map(|delay| Relays::start(server, size, delay));
        let relays = relays.transpose()?;
        let mut team = Team::start(contestant, server, size, self.options.flavour, relays)?;
        let warm_up = match (team.contestant.is_slow_to_warm(), self.options.quick) {
            (false, _) => self.options.lasts,
            (true, false) => WARM_UP,
            (true, true) => WARM_UP / 4,
        };
        self.scenario.round(&mut team, warm_up)?;
        Ok(team)
    }
}

impl Runner {
    /// Records a round. Returns whether the contestant can continue.
    fn note(&mut self, round: Result<Figures, Failure>, part: &mut Part) -> bool {
        match round {
            Ok(figures) => {
                for (figure, value) in figures {
                    self.rounds.entry(figure).or_default().push(value);
                }
                true
            }
            Err(failure) => {
                // The earlier rounds are discarded: the contestant may have been fast because it is
                // wrong.
                self.rounds.clear();
                part.leave_out(&self.team.contestant.name(), &failure.to_string());
                false
            }
        }
    }
}

fn entries(runners: &[Runner]) -> Vec<Entry> {
    let baseline = runners.iter().find(|runner| runner.is_baseline).map(|runner| &runner.rounds);
    let finished = runners.iter().filter(|runner| !runner.rounds.is_empty());
    let entry = |runner: &Runner| {
        let spread = |(figure, rounds): (&Figure, &Vec<f64>)| {
            let baseline =
                baseline.filter(|_| !runner.is_baseline).and_then(|baseline| baseline.get(figure));
            Some((*figure, Spread::of(rounds, baseline.map(Vec::as_slice))?))
        };
        Entry {
            name: runner.team.contestant.name(),
            role: runner.team.contestant.role(),
            is_baseline: runner.is_baseline,
            figures: runner.rounds.iter().filter_map(spread).collect(),
        }
    };
    finished.map(entry).collect()
}

impl Part {
    fn leave_out(&mut self, name: &str, reason: &str) {
        self.left_out.push(LeftOut { name: name.to_owned(), reason: in_short(reason) });
    }
}

/// Returns the first line of a reason, shortened. A reason may contain the log of a server.
fn in_short(reason: &str) -> String {
    let line = reason.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    match line.char_indices().nth(MOST_SAID) {
        Some((end, _)) => format!("{} ...", line[..end].trim_end()),
        None => line.to_owned(),
    }
}

/// Returns the description of the machine and of the options.
fn setting(options: &Options) -> BTreeMap<&'static str, String> {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let places = match options.places {
        Places::Any => "left to the system",
        Places::Chosen => "the server on one, the clients on the others",
    };
    let build = if cfg!(debug_assertions) { "dev" } else { "release" };
    BTreeMap::from([
        ("processor", model.map_or("unknown", |(_, model)| model).to_owned()),
        ("processors", processors.to_string()),
        ("places", places.to_owned()),
        ("load when it began", load.split(' ').next().unwrap_or_default().to_owned()),
        ("rounds", options.rounds.to_string()),
        ("seconds of a round", options.lasts.as_secs_f64().to_string()),
        ("build", build.to_owned()),
        ("tasks of a client", options.flavour.label().to_owned()),
        ("dlock", env!("CARGO_PKG_VERSION").to_owned()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_a_line() {
        assert_eq!(in_short("\n  it ended: no memory\n\tat java.util\n"), "it ended: no memory");
        assert_eq!(in_short(""), "");
        let long = in_short(&"ü".repeat(300));
        assert_eq!(long, format!("{} ...", "ü".repeat(MOST_SAID)));
    }
}
