#![doc = include_str!("../README.md")]

#[cfg(not(unix))]
compile_error!("dlock-cli needs Unix, for signals and process groups");

mod args;
mod completions;
mod doctor;
mod escape;
mod failure;
mod guarantees;
mod inspect;
mod list;
mod man;
mod output;
mod parse;
mod raise_tokens;
mod revoke;
mod run;
mod store;
mod watch;

use std::process::ExitCode;

use clap::CommandFactory;
use tokio::runtime::{Builder, Runtime};

use crate::{
    args::{Cli, Command},
    failure::{Failure, code},
};

fn main() -> ExitCode {
    let cli = match args::parse() {
        Ok(cli) => cli,
        Err(code) => return code.into(),
    };
    // Renewal has its own thread, so output and waits on this runtime do not delay it.
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    match runtime {
        Ok(runtime) => until_done(runtime, command(cli)).into(),
        Err(error) => {
            let why =
                format!("there is no thread to run on ({error}): check the limits of processes");
            Failure::misuse(why).print(false);
            code::MISUSE.into()
        }
    }
}

/// Runs the future to its end. Does not wait for blocking calls, such as one that resolves a name
/// although nobody needs the result any more.
fn until_done<T>(runtime: Runtime, future: impl Future<Output = T>) -> T {
    let done = runtime.block_on(future);
    runtime.shutdown_background();
    done
}

async fn command(cli: Cli) -> u8 {
    let json = cli.command.is_json();
    let store = &cli.store;
    let done = match cli.command {
        Command::Run(args) => run::run(args, store).await,
        Command::Inspect(args) => inspect::run(args, store).await,
        Command::List(args) => list::run(args, store).await,
        Command::Watch(args) => watch::run(args, store).await,
        Command::Break(args) => revoke::run(args, store).await,
        Command::RaiseTokens(args) => raise_tokens::run(args, store).await,
        Command::Doctor(args) => doctor::run(args, store).await,
        Command::Guarantees(args) => guarantees::run(args, store).await,
        Command::Completions(args) => completions::run(&args, Cli::command()),
        Command::Man(args) => man::run(&args, Cli::command()),
    };
    done.unwrap_or_else(|failure| {
        failure.print(json);
        failure.code
    })
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use super::*;

    #[test]
    fn the_end_does_not_wait_for_a_blocking_call() {
        let (end, ended) = mpsc::channel::<()>();
        let (done, is_done) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = Builder::new_multi_thread().worker_threads(1).build().unwrap();
            until_done(runtime, async {
                tokio::task::spawn_blocking(move || ended.recv());
                tokio::task::yield_now().await;
            });
            done.send(()).unwrap();
        });
        assert!(is_done.recv_timeout(Duration::from_secs(60)).is_ok(), "it waits");
        drop(end);
        thread.join().unwrap();
    }
}
