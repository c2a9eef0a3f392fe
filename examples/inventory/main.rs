//! The oversold inventory: the last items of a shop, sold by several processes at once.
//!
//! The stock is a store that does not protect itself: a worker reads how many are left, thinks, and
//! writes one less. Three acts show the result:
//!
//! 1. without a lock the shop sells items that it does not have,
//! 2. with dlock it sells exactly the items that it has,
//! 3. a holder that is stopped past its lease wakes up and writes late, and the stock refuses it
//!    by its fencing token.
//!
//! Run it with `cargo run --features sqlite --example inventory`, and with `-- --help` for more.
//! The exit status is 1 if a promise above was broken, and 2 for bad arguments.
//!
//! Read `worker` first: it is the part that an application writes.

mod acts;
mod args;
mod crew;
mod stock;
mod worker;

use std::{io, path::Path, process::ExitCode, time::Duration};

use dlock::{
    ErrorKind, Locks,
    error::ConfigIssue,
    guarantees::{Fencing, Guarantees, Scope},
};
use tempfile::TempDir;

use crate::{acts::Shop, args::Args, crew::Job};

/// Any reason to stop. The program only prints it.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The lock that all workers share. Its name says what it protects.
const LOCK: &str = "inventory/42";

#[tokio::main]
async fn main() -> ExitCode {
    // The shop starts its workers from its own executable.
    if let Some(job) = Job::from_env() {
        return match worker::work(job).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => complain(1, &failure),
        };
    }
    let args = match Args::parse() {
        Ok(Some(args)) => args,
        Ok(None) => {
            print!("{}", args::HELP);
            return ExitCode::SUCCESS;
        }
        Err(failure) => return complain(2, &format!("{failure}; see --help")),
    };
    tokio::select! {
        told = tell(args) => match told {
            Ok(()) => ExitCode::SUCCESS,
            // The reader of the output has closed the pipe.
            Err(failure) if is_broken_pipe(&failure) => ExitCode::SUCCESS,
            Err(failure) => complain(exit_code(&failure), &failure),
        },
        () = interrupted() => complain(130, &"interrupted"),
    }
}

/// Plays the whole story. Dropping the future kills the workers and removes the files.
async fn tell(args: Args) -> Result<(), Failure> {
    let dir = TempDir::with_prefix("dlock-inventory-")?;
    let url = match &args.url {
        Some(url) => url.clone(),
        None => own_url(dir.path())?,
    };
    let locks = connect(&url).await?;
    let shop = Shop { args, url, dir: dir.path().to_owned(), locks: locks.clone() };
    let told = shop.open(&mut io::stdout()).await;
    locks.shutdown(Duration::from_secs(5)).await?;
    told
}

/// Connects, and refuses a store without the guarantees that the acts need.
async fn connect(url: &str) -> Result<Locks, dlock::Error> {
    let locks = dlock::connect(url).await?;
    // With a store inside one process, such as memory:, every worker process would have its own
    // lock.
    locks.require(&Guarantees::WEAKEST.with_scope(Scope::Machine).with_fencing(Fencing::Clock))?;
    // A stopped process keeps its connection, and with it these locks: the last act would wait
    // forever.
    if url.contains("dlock.advisory=true") {
        let text = "advisory locks do not end with a lease, of which this story tells: leave \
                    dlock.advisory away";
        return Err(dlock::Error::config(ConfigIssue::Guarantee, text));
    }
    Ok(locks)
}

/// Returns the URL of an SQLite file that is removed with the directory.
fn own_url(dir: &Path) -> Result<String, Failure> {
    let path = dir.join("locks.db");
    let path = path.to_str().ok_or("the temporary directory is not UTF-8: set TMPDIR")?;
    // Escapes the characters that would end the path within a URL.
    let path = path.replace('%', "%25").replace('?', "%3F").replace('#', "%23");
    Ok(format!("sqlite://{path}?dlock.create_schema=true"))
}

/// A wrong URL is the caller's mistake, like a wrong argument.
fn exit_code(failure: &Failure) -> u8 {
    match failure.downcast_ref::<dlock::Error>().map(dlock::Error::kind) {
        Some(ErrorKind::Config(_)) => 2,
        _ => 1,
    }
}

fn is_broken_pipe(failure: &Failure) -> bool {
    failure
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn complain(code: u8, what: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("inventory: {what}");
    ExitCode::from(code)
}

/// Waits for Ctrl-C or a request to end. Without this, the program would end without cleaning up.
async fn interrupted() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = terminate.recv() => return,
                _ = tokio::signal::ctrl_c() => return,
            }
        }
    }
    // Without a handler no signal can arrive, and the story continues.
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
