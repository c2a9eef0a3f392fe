//! dlock beside the bare drivers and other locks, over all stores.
//!
//! `cargo run --release -p dlock-bench -- compare` starts servers of its own and has all contestants
//! take rounds in turns. It prints the median round of each, with its ratio to a baseline that is
//! measured in the same run, so that the ratios depend little on how fast the machine is.

mod awake;
mod clock;
mod compare;
mod processors;
mod runtime;
mod stats;
mod subject;
mod usage;

use std::process::ExitCode;

use lexopt::Parser;

/// Any reason to stop: it is only printed.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    // This executable starts itself again for measurements over several processes.
    if awake::is_asked_for() {
        return end_of_child(awake::spin());
    }
    if compare::own::is_asked_for() {
        return end_of_child(compare::own::be());
    }
    // There is one command, so its name may be left out.
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
