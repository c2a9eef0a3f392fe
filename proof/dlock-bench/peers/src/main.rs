//! Other projects' locks as subjects of `dlock-bench compare`.
//!
//! `dlock-bench-peers NAME URL THREADS` is the lock of that name over the server at that address,
//! and follows the commands on its standard input.

mod clock;
mod distributed;
mod postgres;
mod redlock;
mod rslock;
#[expect(dead_code, reason = "no peer has locks of all kinds")]
#[path = "../../src/subject/mod.rs"]
mod subject;
mod zk;

use std::process::ExitCode;

use subject::serve;
use tokio::runtime::{Builder, Runtime};

/// Any reason to stop. The program only prints it.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    match be() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("dlock-bench-peers: {failure}");
            ExitCode::from(2)
        }
    }
}

/// Serves the requested subject.
fn be() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [name, url, threads] = &args[..] else {
        return Err("it is started with a name, a URL, and how many threads it has".into());
    };
    let on = runtime(threads)?;
    match name.as_str() {
        "rslock" => serve(&on, &rslock::Rslock::new(url)),
        "redlock" => serve(&on, &redlock::Redlock::new(url)),
        "distributed-lock-redis" => serve(&on, &on.block_on(distributed::redis(url))?),
        "distributed-lock-postgres" => serve(&on, &on.block_on(distributed::postgres(url))?),
        "distributed-lock-mysql" => serve(&on, &on.block_on(distributed::mysql(url))?),
        "PgAdvisoryLock" => serve(&on, &on.block_on(postgres::Advisory::connect(url))?),
        "zookeeper-client" => serve(&on, &on.block_on(zk::Recipe::connect(url))?),
        _ => Err(format!("no peer {name}").into()),
    }
}

/// The same runtimes as those of dlock's own processes.
fn runtime(threads: &str) -> Result<Runtime, Failure> {
    Ok(match threads {
        "one thread" => Builder::new_current_thread().enable_all().build()?,
        "two threads" => Builder::new_multi_thread().worker_threads(2).enable_all().build()?,
        _ => return Err("so many threads are not known".into()),
    })
}
