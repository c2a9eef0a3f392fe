#![doc = include_str!("../README.md")]

#[cfg(not(unix))]
compile_error!("dlock-cli needs Unix, for signals and process groups");

mod args;
mod breaking;
mod completions;
mod doctor;
mod failure;
mod guarantees;
mod inspect;
mod list;
mod man;
mod output;
mod parse;
mod raise_tokens;
mod run;
mod store;
mod watch;

use std::process::ExitCode;

use clap::CommandFactory;

use crate::args::{Cli, Command};

// Renewal has its own thread, so output and waits on this runtime do not delay it.
#[tokio::main(worker_threads = 1)]
async fn main() -> ExitCode {
    let cli = match args::parse() {
        Ok(cli) => cli,
        Err(code) => return code.into(),
    };
    let json = cli.command.is_json();
    let done = match cli.command {
        Command::Run(args) => run::run(args).await,
        Command::Inspect(args) => inspect::run(args).await,
        Command::List(args) => list::run(args).await,
        Command::Watch(args) => watch::run(args).await,
        Command::Break(args) => breaking::run(args).await,
        Command::RaiseTokens(args) => raise_tokens::run(args).await,
        Command::Doctor(args) => doctor::run(args).await,
        Command::Guarantees(args) => guarantees::run(args).await,
        Command::Completions(args) => completions::run(&args, Cli::command()),
        Command::Man(args) => man::run(&args, Cli::command()),
    };
    match done {
        Ok(code) => code.into(),
        Err(failure) => {
            failure.tell(json);
            failure.code.into()
        }
    }
}
