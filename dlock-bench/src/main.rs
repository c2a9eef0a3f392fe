//! What dlock costs over a store, measured against the store's bare driver.
//!
//! `cargo run --release -p dlock-bench -- redis` (or `postgres`, `mysql`, `zk`) starts a server of
//! its own, prints one table and fails when a target is missed. Nothing here depends on how fast
//! the machine is: each figure is a ratio to a floor that is measured in the same run, in turns
//! with dlock, or a count of what the server saw.
//!
//! `cargo run --release -p dlock-bench -- compare` sets dlock beside the bare drivers and other
//! locks, over all stores.

mod args;
mod awake;
mod bench;
mod clock;
mod compare;
mod crew;
mod cycle;
mod names;
mod processors;
mod redis;
mod report;
mod rounds;
mod runtime;
mod sql;
mod stats;
mod subject;
mod usage;
mod zk;

use std::process::ExitCode;

use crate::{
    args::{Args, Store},
    crew::child,
    report::Report,
};

/// Any reason to stop: it is only printed.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    // This executable starts itself again for measurements over several processes.
    if awake::is_asked_for() {
        return end_of_child(awake::spin());
    }
    if let Some(url) = child::url() {
        return end_of_child(child::serve(&url, &mut redis::Messages::default()));
    }
    if compare::own::is_asked_for() {
        return end_of_child(compare::own::be());
    }
    let mut words = lexopt::Parser::from_env();
    if let Ok(Some(lexopt::Arg::Value(word))) = words.next()
        && word == compare::WORD
    {
        return match compare::compare(words) {
            Ok(code) => code,
            Err(failure) => complain(2, &format!("{failure}; see compare --help")),
        };
    }
    let args = match Args::parse() {
        Ok(Some(args)) => args,
        Ok(None) => {
            print!("{}", args::help());
            return ExitCode::SUCCESS;
        }
        Err(failure) => return complain(2, &format!("{failure}; see --help")),
    };
    let mut report = Report::default();
    let measured = match args.store {
        Store::Redis => redis::measure(&args, &mut report),
        Store::Postgres => sql::measure(sql::Kind::Postgres, &args, &mut report),
        Store::Mysql => sql::measure(sql::Kind::Mariadb, &args, &mut report),
        Store::Zk => zk::measure(&args, &mut report),
    };
    match measured {
        Ok(()) => report.verdict(),
        Err(failure) => complain(2, &failure),
    }
}

fn end_of_child(end: Result<(), Failure>) -> ExitCode {
    match end {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => complain(2, &failure),
    }
}

fn complain(code: u8, what: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("dlock-bench: {what}");
    ExitCode::from(code)
}
