//! The comparison: dlock, the baselines and other locks, over each store and in each scenario, in
//! alternating rounds of one run.
//!
//! It measures what a user would see: by default the system places the processes, and the result is
//! the median round.

use std::process::ExitCode;

use lexopt::Parser;

use crate::{
    Failure,
    crew::peers,
    matrix,
    options::{Asked, EndsWith, HELP, Options},
    report::{self, targets},
    scenario,
    store::Store,
};

/// The word on the command line that selects it.
pub(crate) const WORD: &str = "compare";

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
    let (peers, missing) = peers::ready(&options.peers, &options.stores);
    let mut results = matrix::run(&options, &peers, missing)?;
    results.targets = targets::judge(&results.parts);
    report::end(&results, options.report.as_deref())?;
    let missed = results.targets.iter().any(|verdict| !verdict.met);
    Ok(match options.ends_with {
        EndsWith::Targets if missed => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    })
}

fn list() {
    println!("stores: {}\n\nscenarios:", Store::ALL.map(Store::name).join(", "));
    for scenario in scenario::all() {
        println!("  {:<16}{}", scenario.name(), scenario.about());
    }
    println!("\npeers:");
    for peer in peers::PEERS {
        println!("  {:<28}{}", peer.name, peer.store.name());
    }
}
