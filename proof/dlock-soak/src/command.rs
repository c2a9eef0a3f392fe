//! The command `dlock-soak`. It injects faults into stores, their connections and their clients for
//! the requested time, and reports whether dlock kept its promises.
//!
//! ```text
//! dlock-soak --url private:redis --url private:zk --minutes 10 --report out/
//! ```
//!
//! Each store is tested in rounds. A round begins without faults, which shows the normal rate. Then
//! the faults of this store follow in random order, and each has to prove that it took effect. Then
//! the round continues without faults. The holds of the clients are a
//! [history](dlock_testkit::history), which all checkers of [the load](crate) judge.
//!
//! The verdict is *pass* if nothing was wrong and enough happened to say so, *fail* if something
//! was wrong, and *unknown* if too little happened: few grants, few faults, or a kind of fault that
//! never took effect.

mod options;
mod plot;
mod round;
mod table;
mod verdict;

use std::{path::Path, process::ExitCode, time::Duration};

use dlock_testkit::Stop;
use futures_util::{StreamExt, stream};

use self::{
    options::{Asked, HELP, Options, StoreArg, connect},
    round::{Plan, Round},
    table::Row,
    verdict::{Judgement, Outcome, Tally},
};
use crate::{report::Report, run::serve_if_child, scene::injections_text, setups::SETUPS};

/// The longest round. A longer time is divided into several rounds, each with a new store and its
/// own history.
const LONGEST: Duration = Duration::from_secs(150);

/// The exit status of a usage error.
const MISUSED: u8 = 2;

/// Runs the command with the arguments of this process. In a process of holders, serves the parent.
pub fn main() -> ExitCode {
    serve_if_child(connect);
    let options = match Asked::read(lexopt::Parser::from_env()) {
        Ok(Asked::Run(options)) => options,
        Ok(Asked::Judge(file)) => return judge(&file),
        Ok(Asked::Help) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Ok(Asked::List) => {
            for setup in SETUPS {
                println!("private:{:<20} {}", setup.name, setup.what);
            }
            return ExitCode::SUCCESS;
        }
        Err(what) => return misused(&what),
    };
    if let Some(directory) = &options.report
        && let Err(error) = std::fs::create_dir_all(directory)
    {
        return misused(&format!("--report {}: {error}", directory.display()));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    match runtime {
        Ok(runtime) => runtime.block_on(soak(&options)),
        Err(error) => misused(&error.to_string()),
    }
}

/// Judges a recorded history.
fn judge(file: &Path) -> ExitCode {
    let report = match Report::read_history(file) {
        Ok(report) => report,
        Err(stop) => return misused(&format!("--judge {}: {}", file.display(), stop.into_text())),
    };
    println!("{report}");
    let violations = report.violations();
    for violation in &violations {
        println!("{violation}");
    }
    if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn misused(what: &str) -> ExitCode {
    eprintln!("dlock-soak: {what}");
    ExitCode::from(MISUSED)
}

async fn soak(options: &Options) -> ExitCode {
    let each = options.time / u32::try_from(options.places.len()).unwrap_or(u32::MAX);
    let rows: Vec<Row> = stream::iter(&options.places)
        .map(|place| run_rounds(place, each, options))
        .buffered(options.jobs)
        .collect()
        .await;
    println!("\n{}", table::summary(&rows));
    for row in &rows {
        let Judgement { outcome, reasons } = &row.judgement;
        println!("{}: {outcome}", row.tally.store);
        for reason in reasons {
            println!("  {reason}");
        }
        for (check, violations) in &row.tally.violations {
            for example in &violations.examples {
                println!("  {check}: {example}");
            }
        }
    }
    if let Some(directory) = &options.report {
        match written(directory, &rows) {
            Ok(()) => println!("\nThe report is in {}.", directory.display()),
            Err(what) => return misused(&what),
        }
    }
    let worst = rows.iter().map(|row| row.judgement.outcome).max();
    match worst.unwrap_or(Outcome::Unknown) {
        Outcome::Pass => ExitCode::SUCCESS,
        Outcome::Fail => ExitCode::FAILURE,
        Outcome::Unknown => ExitCode::from(3),
    }
}

fn written(directory: &Path, rows: &[Row]) -> Result<(), String> {
    let json = table::json(rows).map_err(|error| error.to_string())?;
    for (name, text) in [("report.md", table::markdown(rows)), ("report.json", json)] {
        let file = directory.join(name);
        std::fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(())
}

/// Runs all rounds on one store, which take this time together.
async fn run_rounds(place: &StoreArg, time: Duration, options: &Options) -> Row {
    let count = u32::try_from(time.as_nanos().div_ceil(LONGEST.as_nanos())).unwrap_or(u32::MAX);
    let plan = Plan::of(time / count);
    let mut rounds = Vec::new();
    let mut failures = Vec::new();
    for number in 1..=count {
        println!("{}: round {number} of {count}, {:.0?}", place.name(), time / count);
        let round = match Round::run(place, plan, options.old.as_deref()).await {
            Ok(round) => round,
            Err(stop) => {
                failures.push(format!("round {number} was not finished: {}", stop.into_text()));
                println!("{}: {}", place.name(), failures[failures.len() - 1]);
                break;
            }
        };
        if let Some(report) = &round.report {
            println!("{}: {} faults, {report}", place.name(), round.injections.len());
        }
        let name = format!("{}-{number}", place.name());
        if let Err(stop) = kept(&round, &name, options) {
            failures.push(stop.into_text());
        }
        rounds.push(round);
    }
    let tally = Tally::of(place, &rounds);
    let mut judgement = Judgement::of(&tally, place, time.as_secs_f64(), options.busy);
    if !failures.is_empty() && judgement.outcome == Outcome::Pass {
        judgement.outcome = Outcome::Unknown;
    }
    judgement.reasons.extend(failures);
    let wrong = rounds.iter().zip(1..).filter(|(round, _)| !round.violations.is_empty());
    let descriptions = wrong.map(|(round, number)| {
        format!("round {number}: {}", injections_text(&round.injections, round.began))
    });
    judgement.reasons.extend(descriptions);
    Row { judgement, tally }
}

/// Writes the files of a round that are kept.
fn kept(round: &Round, name: &str, options: &Options) -> Result<(), Stop> {
    let Some(directory) = &options.report else { return Ok(()) };
    plot::draw(round, directory, name)?;
    if !round.violations.is_empty() || options.keep {
        round.write_history(&directory.join(format!("{name}.jsonl")))?;
    }
    Ok(())
}
