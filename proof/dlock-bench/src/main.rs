//! Compares dlock with the bare drivers and other locks, over all stores.
//!
//! `cargo run --release -p dlock-bench -- compare` starts private servers and runs all contestants
//! in alternating rounds. It prints the median round of each contestant, with its ratio to a
//! baseline that is measured in the same run. So the ratios depend little on the speed of the
//! machine.
//!
//! The modules form layers, each of which uses only those before it: `subject` and `own`, the
//! measured code; `store`, the private servers; `crew`, the processes of a contestant; `scenario`, the
//! work of the processes; `report`, the results. `compare` is the command, which runs all scenarios.

mod clock;
mod compare;
mod crew;
mod figures;
mod options;
mod own;
mod processors;
mod report;
mod scenario;
mod store;
mod subject;
mod usage;

use std::process::ExitCode;

use lexopt::Parser;

/// Any reason to stop. The program only prints it.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    // This executable starts itself again for measurements with several processes.
    if processors::is_spinning() {
        return end_of_child(processors::spin());
    }
    if own::is_asked_for() {
        return end_of_child(own::be());
    }
    // There is only one command, so its name is optional.
    let mut words = std::env::args_os().skip(1).peekable();
    words.next_if(|word| word == compare::WORD);
    match compare::compare(Parser::from_args(words)) {
        Ok(code) => code,
        Err(failure) => complain(&format!("{failure}; see --help")),
    }
}

fn end_of_child(end: Result<(), Failure>) -> ExitCode {
    match end {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => complain(&failure),
    }
}

fn complain(what: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("dlock-bench: {what}");
    ExitCode::from(2)
}
