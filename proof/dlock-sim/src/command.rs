//! The command: many seeds, one seed, or the seeds of a file.
//!
//! Each seed has a process of its own, since tokio and the standard library count across threads. A
//! seed that fails is run again with fewer and fewer faults, until all that are left are needed.

use std::{
    collections::{BTreeMap, VecDeque},
    ffi::OsString,
    fmt::{self, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use dlock_testkit::Stop;
use lexopt::prelude::*;

use crate::{
    faults::{MESSAGE_LATE, MESSAGE_LOST, MESSAGE_TWICE, SLOW_MESSAGE},
    mutant::{self, MUTANTS},
    run::{Summary, run},
    stores::{self, STORES},
};

const USAGE: &str = "\
usage: scripts/simulate [options]

Runs the client code of dlock in worlds from seeds, with faults, and judges what its clients saw.

  --minutes N   for how long new seeds are run (1)
  --count N     how many seeds are run, instead of a time
  --seed N      the first seed; without --minutes and --count, the only one
  --jobs N      how many seeds run at the same time (2)
  --check FILE  the seeds of a file: each line has a store, a seed and the hash of its
                history, or a mutant and a seed that finds it
  --write       with --check: writes the hashes into the file
  --keep A,B    injects these faults of the seed only; \"none\" leaves out all
  --no-slow     no message is slow
  --store NAME  the store of all seeds; otherwise each seed has one of them
  --mutant NAME a mistake on purpose, which the run has to find
  --mutants     each mistake in turn, until a seed finds it, in --count seeds (300)
  --print       prints all that happens

Exit codes: 0 if no promise was broken, 1 if one was, 2 for wrong options.";

/// How often a failing seed is run with fewer faults.
const ATTEMPTS: usize = 200;

#[derive(Clone, Debug, Default)]
struct Options {
    minutes: Option<u64>,
    count: Option<u64>,
    seed: Option<u64>,
    jobs: usize,
    check: Option<PathBuf>,
    write: bool,
    keep: Option<Vec<usize>>,
    no_slow: bool,
    store: Option<String>,
    mutant: Option<String>,
    mutants: bool,
    print: bool,
    /// Runs in this process and prints a [`Summary`].
    one: bool,
}

pub(crate) fn main() -> ExitCode {
    let options = match Options::read() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let verdict = match (&options.check, options.one) {
        (_, true) => one(&options),
        (Some(file), _) => check(&options, file),
        (None, _) if options.mutants => mutants(&options),
        (None, _) => many(&options),
    };
    match verdict {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(stop) => {
            eprintln!("{}", stop.into_text());
            ExitCode::FAILURE
        }
    }
}

impl Options {
    fn read() -> Result<Self, lexopt::Error> {
        let mut options = Self { jobs: 2, ..Self::default() };
        let mut parser = lexopt::Parser::from_env();
        while let Some(argument) = parser.next()? {
            match argument {
                Long("minutes") => options.minutes = Some(parser.value()?.parse()?),
                Long("count") => options.count = Some(parser.value()?.parse()?),
                Long("seed") => options.seed = Some(parser.value()?.parse()?),
                Long("jobs") => options.jobs = parser.value()?.parse::<usize>()?.max(1),
                Long("check") => options.check = Some(parser.value()?.into()),
                Long("write") => options.write = true,
                Long("keep") => options.keep = Some(parser.value()?.parse_with(numbers)?),
                Long("no-slow") => options.no_slow = true,
                Long("store") => {
                    options.store = Some(parser.value()?.parse_with(name_of(stores::named))?);
                }
                Long("mutant") => {
                    options.mutant = Some(parser.value()?.parse_with(name_of(mutant::named))?);
                }
                Long("mutants") => options.mutants = true,
                Long("print") => options.print = true,
                Long("one") => options.one = true,
                Long("help") => {
                    println!("{USAGE}\n\nStores: {}.", STORES.map(|store| store.name()).join(", "));
                    std::process::exit(0);
                }
                other => return Err(other.unexpected()),
            }
        }
        Ok(match options.mutant.take() {
            Some(name) => options.with_mutant(&name),
            None => options,
        })
    }

    /// Puts in this mistake, in a store that shows it.
    fn with_mutant(&self, name: &str) -> Self {
        let of_mutant = mutant::named(name).map(|(_, store)| store.to_owned());
        let store = self.store.clone().or(of_mutant);
        Self { store, mutant: Some(name.to_owned()), ..self.clone() }
    }

    /// The options for the store.
    fn variant(&self) -> Vec<String> {
        let all = [("--store", &self.store), ("--mutant", &self.mutant)];
        let set = all.into_iter().filter_map(|(name, value)| Some((name, value.clone()?)));
        set.flat_map(|(name, value)| [name.to_owned(), value]).collect()
    }

    /// The arguments of a process that runs this seed.
    fn arguments(&self, seed: u64) -> Vec<OsString> {
        let mut arguments = vec!["--one".into(), "--seed".into(), seed.to_string().into()];
        if let Some(keep) = &self.keep {
            arguments.extend(["--keep".into(), text_of(keep).into()]);
        }
        arguments.extend(self.variant().into_iter().map(OsString::from));
        for (is_set, name) in [(self.no_slow, "--no-slow"), (self.print, "--print")] {
            if is_set {
                arguments.push(name.into());
            }
        }
        arguments
    }
}

/// Checks a name, and returns it.
fn name_of<T>(named: fn(&str) -> Option<T>) -> impl Fn(&str) -> Result<String, String> {
    move |text| match named(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err("there is none with this name".to_owned()),
    }
}

fn numbers(text: &str) -> Result<Vec<usize>, std::num::ParseIntError> {
    match text {
        "none" => Ok(Vec::new()),
        text => text.split(',').map(str::parse).collect(),
    }
}

fn text_of(numbers: &[usize]) -> String {
    match numbers {
        [] => "none".to_owned(),
        numbers => numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
    }
}

/// Runs a seed in this process.
fn one(options: &Options) -> Result<bool, Stop> {
    let store = options.store.as_deref().and_then(stores::named);
    let (store, mut plan) = stores::draw(options.seed.unwrap_or(1), store);
    plan.mutant = options.mutant.as_deref().and_then(mutant::named).map(|(name, _)| name);
    if let Some(keep) = &options.keep {
        plan.keep(keep);
    }
    if options.no_slow {
        plan.without_slow_messages();
    }
    if options.print {
        println!("{plan:#?}");
    }
    let prints = options.print;
    // The hashers of the standard library ask for random numbers once in each thread.
    let summary = std::thread::spawn(move || run(store, &plan, prints));
    let summary = summary.join().map_err(|_| Stop::failed("the world has panicked"))?;
    println!("{}", serde_json::to_string(&summary)?);
    Ok(summary.violations.is_empty())
}

/// A seed that runs in a process of its own.
struct Running {
    seed: u64,
    child: Child,
}

impl Running {
    fn start(options: &Options, seed: u64) -> Result<Self, Stop> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(options.arguments(seed)).stdin(Stdio::null()).stdout(Stdio::piped());
        Ok(Self { seed, child: command.spawn()? })
    }

    fn summary(self) -> Result<Summary, Stop> {
        let output = self.child.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let mut lines: Vec<&str> = text.lines().collect();
        let last = lines.pop().unwrap_or_default();
        for line in lines {
            println!("{line}");
        }
        serde_json::from_str(last)
            .map_err(|_| Stop::failed(format!("seed {} has ended without a result", self.seed)))
    }
}

fn summary_of(options: &Options, seed: u64) -> Result<Summary, Stop> {
    Running::start(options, seed)?.summary()
}

/// The begin of a run, in real time. The clock of the product is simulated.
#[expect(clippy::disallowed_methods, reason = "it only measures how long the command takes")]
fn started() -> Instant {
    Instant::now()
}

/// Runs seeds for a time, or so many of them.
fn many(options: &Options) -> Result<bool, Stop> {
    let only_one = options.seed.is_some() && options.minutes.is_none() && options.count.is_none();
    let count = if only_one { Some(1) } else { options.count };
    let first = options.seed.unwrap_or_else(|| rand::random_range(1..1_000_000_000));
    let limit = Duration::from_secs(60 * options.minutes.unwrap_or(1));
    let began = started();
    let (mut total, mut failed) = (Total::default(), Vec::new());
    let (mut running, mut next) = (VecDeque::new(), first);
    loop {
        let goes_on = match count {
            Some(count) => next - first < count,
            None => began.elapsed() < limit,
        };
        if goes_on && running.len() < options.jobs {
            running.push_back(Running::start(options, next)?);
            next += 1;
            continue;
        }
        let Some(oldest) = running.pop_front() else { break };
        let summary = oldest.summary()?;
        total.add(&summary);
        if !summary.violations.is_empty() {
            println!("seed {} fails: {}", summary.seed, summary.violations[0]);
            failed.push(summary);
        }
    }
    print!("{}", total.text(began.elapsed()));
    for summary in failed.iter().take(3) {
        explain(options, summary)?;
    }
    match failed.len() {
        0 => println!("No promise was broken."),
        count => println!("{count} seeds broke a promise."),
    }
    Ok(failed.is_empty())
}

/// The figures of many seeds.
#[derive(Debug, Default)]
struct Total {
    seeds: u64,
    grants: u64,
    simulated: u64,
    effects: BTreeMap<String, u64>,
}

impl Total {
    fn add(&mut self, summary: &Summary) {
        self.seeds += 1;
        self.grants += summary.grants;
        self.simulated += summary.simulated;
        for (kind, count) in &summary.effects {
            *self.effects.entry(kind.clone()).or_default() += count;
        }
    }

    fn text(&self, took: Duration) -> String {
        let (simulated, mut text) = (Duration::from_micros(self.simulated), String::new());
        let _ = writeln!(
            text,
            "{} seeds, {} grants, {:.0} simulated seconds in {:.0} s",
            self.seeds,
            self.grants,
            simulated.as_secs_f64(),
            took.as_secs_f64()
        );
        let of_messages = [SLOW_MESSAGE, MESSAGE_LOST, MESSAGE_TWICE, MESSAGE_LATE];
        let injected =
            self.effects.iter().filter(|(kind, _)| !of_messages.contains(&kind.as_str()));
        let faults: u64 = injected.map(|(_, count)| count).sum();
        let _ = writeln!(text, "{faults} faults that took effect, and those of messages:");
        for (kind, count) in &self.effects {
            let _ = writeln!(text, "{count:>10} {kind}");
        }
        text
    }
}

/// Finds the faults that a failing seed needs, and prints how to see it again.
fn explain(options: &Options, failed: &Summary) -> Result<(), Stop> {
    println!("\nseed {}:", failed.seed);
    let mut options = options.clone();
    options.print = false;
    let mut least = failed.clone();
    let mut attempts = 0;
    let mut fails = |options: &Options, least: &mut Summary| -> Result<bool, Stop> {
        attempts += 1;
        if attempts > ATTEMPTS {
            return Ok(false);
        }
        let summary = summary_of(options, failed.seed)?;
        let same = summary.check == failed.check;
        if same {
            *least = summary;
        }
        Ok(same)
    };
    let mut tried = Options { no_slow: true, ..options.clone() };
    if fails(&tried, &mut least)? {
        options = tried;
    }
    // Zeller, Hildebrandt: "Simplifying and isolating failure-inducing input", 2002, without its
    // second half: a part is left out if the failure stays.
    let mut kept: Vec<usize> = least.faults.iter().map(|(number, _)| *number).collect();
    let mut part = kept.len().max(1);
    loop {
        let mut at = 0;
        while at < kept.len() {
            let mut fewer = kept.clone();
            fewer.drain(at..(at + part).min(kept.len()));
            tried = Options { keep: Some(fewer.clone()), ..options.clone() };
            match fails(&tried, &mut least)? {
                true => (kept, options) = (fewer, tried),
                false => at += part,
            }
        }
        if part == 1 {
            break;
        }
        part = part.div_ceil(2);
    }
    for violation in &least.violations {
        println!("- {violation}");
    }
    println!("the faults that it needs:");
    for (_, fault) in &least.faults {
        println!("  {fault}");
    }
    for line in &least.timeline {
        println!("  {line}");
    }
    let no_slow = if options.no_slow { " --no-slow" } else { "" };
    let (seed, kept) = (failed.seed, text_of(&kept));
    let variant: String = options.variant().iter().map(|part| format!(" {part}")).collect();
    println!("again: scripts/simulate --seed {seed} --keep {kept}{no_slow}{variant} --print");
    Ok(())
}

/// A line of a file of seeds: `STORE SEED HASH` for a seed that breaks no promise, with the hash of its
/// history, or `MUTANT SEED` for one that finds a mutant.
#[derive(Clone, Debug)]
struct Line {
    name: String,
    seed: u64,
    hash: Option<String>,
}

impl Line {
    fn parse(text: &str) -> Result<Self, Stop> {
        let mut words = text.split(' ').map(str::to_owned);
        match (words.next(), words.next().map(|seed| seed.parse())) {
            (Some(name), Some(Ok(seed))) => Ok(Self { name, seed, hash: words.next() }),
            _ => Err(Stop::failed(format!("not a line of a file of seeds: {text:?}"))),
        }
    }

    fn start(&self, options: &Options) -> Result<Running, Stop> {
        let options = match self.hash {
            Some(_) => Options { store: Some(self.name.clone()), ..options.clone() },
            None => options.with_mutant(&self.name),
        };
        Running::start(&options, self.seed)
    }

    /// Returns what is wrong with the result.
    fn judge(&self, summary: &Summary) -> Option<String> {
        let Self { name, seed, hash } = self;
        match (hash, summary.violations.first()) {
            (None, None) => Some(format!("seed {seed} does not find the mutant {name}")),
            (Some(_), Some(violation)) => Some(format!("seed {seed} of {name} fails: {violation}")),
            (Some(hash), None) if summary.hash != *hash => {
                Some(format!("seed {seed} of {name} has the hash {}, not {hash}", summary.hash))
            }
            _ => None,
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.seed)?;
        self.hash.iter().try_for_each(|hash| write!(f, " {hash}"))?;
        writeln!(f)
    }
}

/// Runs the seeds of a file, or writes the hashes of their histories into it.
fn check(options: &Options, file: &Path) -> Result<bool, Stop> {
    let text = std::fs::read_to_string(file)?;
    let mut lines = text.lines().map(Line::parse).collect::<Result<Vec<_>, _>>()?;
    let (began, mut total, mut is_right) = (started(), Total::default(), true);
    let (mut running, mut rest) = (VecDeque::new(), lines.iter_mut());
    loop {
        if running.len() < options.jobs
            && let Some(line) = rest.next()
        {
            running.push_back((line.start(options)?, line));
            continue;
        }
        let Some((oldest, line)) = running.pop_front() else { break };
        let summary = oldest.summary()?;
        total.add(&summary);
        if options.write && line.hash.is_some() {
            line.hash = Some(summary.hash.clone());
        }
        if let Some(wrong) = line.judge(&summary) {
            println!("{wrong}");
            is_right = false;
        }
    }
    print!("{}", total.text(began.elapsed()));
    if options.write {
        std::fs::write(file, lines.iter().map(ToString::to_string).collect::<String>())?;
    }
    Ok(is_right)
}

/// Runs each mutant until a seed finds it, and prints how many seeds that takes.
fn mutants(options: &Options) -> Result<bool, Stop> {
    let most = options.count.unwrap_or(300);
    let first = options.seed.unwrap_or(1);
    let mut all_found = true;
    for (name, _) in MUTANTS {
        let options = options.with_mutant(name);
        let mut found = None;
        for seed in first..first + most {
            let summary = summary_of(&options, seed)?;
            if let Some(violation) = summary.violations.first() {
                found = Some((seed, violation.chars().take(100).collect::<String>()));
                break;
            }
        }
        match found {
            Some((seed, violation)) => {
                println!(
                    "{name}: found by seed {seed}, the number {}: {violation}",
                    seed - first + 1
                );
            }
            None => {
                println!("{name}: not found by {most} seeds");
                all_found = false;
            }
        }
    }
    Ok(all_found)
}
