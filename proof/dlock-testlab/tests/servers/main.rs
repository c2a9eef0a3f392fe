//! The private servers behave as tests expect, and leave nothing behind.

#![cfg(unix)]

mod clock;
mod counts;
mod ensemble;
mod etcd;
mod groups;
mod java;
mod lost;
mod mariadb;
mod postgres;
mod proxy;
mod pushes;
mod redis;
mod remains;
mod watcher;
mod zookeeper;

use std::{
    net::TcpListener,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use dlock_testlab::{Server, Stop, Verdict, run_test};
use rustix::process::{Pid, test_kill_process};
use tokio::{
    runtime::Builder,
    time::{sleep, timeout},
};

/// Longer than any test takes, even on a busy machine.
const LONG: Duration = Duration::from_secs(300);

/// Runs a test that needs a Redis server.
fn with_redis(test: impl Future<Output = Verdict>) {
    with("redis", test);
}

/// Runs a test that needs this server. Without one, the test is skipped, or fails if the server is
/// required.
fn with(server: &str, test: impl Future<Output = Verdict>) {
    let runtime = Builder::new_multi_thread().enable_all().build().expect("a runtime");
    run_test(server, runtime, LONG, test);
}

/// Returns whether the process exists, even as a zombie.
fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid).is_ok())
}

/// Waits until a child process of a server has ended. It may stay a zombie.
async fn gone(pid: u32) {
    let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let wait = async {
        while is_alive(pid) && !state().contains(") Z ") {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(60), wait).await.expect("the child of a server ends");
}

/// Drops a server, of which no process and no file is left.
fn assert_leaves_nothing<O: Send + Sync + 'static>(server: Server<O>) {
    let (pid, directory) = (server.pid().expect("it runs"), server.directory().to_owned());
    assert!(is_alive(pid) && directory.exists());
    drop(server);
    assert!(!is_alive(pid) && !directory.exists());
}

/// Kills a server: its process has ended.
fn assert_dies<O: Send + Sync + 'static>(server: &Server<O>) {
    let pid = server.pid().expect("it runs");
    server.kill();
    assert!(server.pid().is_none() && !is_alive(pid));
}

/// Shuts a server down, which is possible once, and starts it twice.
async fn assert_restarts<O: Send + Sync + 'static>(server: &Server<O>) -> Verdict {
    let address = server.address();
    server.stop().await?;
    assert!(server.pid().is_none() && server.stop().await.is_err());
    server.restart().await?;
    server.restart().await?;
    assert_eq!(server.address(), address);
    Ok(())
}

/// A paused server can be stopped and killed, too.
async fn assert_ends_while_paused<O: Send + Sync + 'static>(server: &Server<O>) -> Verdict {
    server.pause()?;
    server.stop().await?;
    server.restart().await?;
    server.pause()?;
    server.kill();
    assert!(server.pause().is_err() && server.resume().is_err());
    server.restart().await
}

/// A server starts again although another process has its port for a while.
async fn assert_waits_for_its_port<O: Send + Sync + 'static>(server: &Server<O>) -> Verdict {
    server.kill();
    let taken = TcpListener::bind(server.address())?;
    let later = async {
        sleep(Duration::from_secs(1)).await;
        drop(taken);
    };
    let (restarted, ()) = tokio::join!(server.restart(), later);
    restarted
}

/// Ends the clients of a server until this client is disconnected. Returns its error, and the
/// number of clients that were ended. Clients of earlier requests may still be connected, and are
/// counted as well.
async fn until_over<T, E>(
    client: impl Future<Output = T> + Send,
    end: impl Fn() -> E + Send + Sync,
) -> Result<(T, usize), Stop>
where
    T: Send,
    E: Future<Output = Result<usize, Stop>> + Send,
{
    let over = AtomicBool::new(false);
    let asking = async {
        let told = client.await;
        over.store(true, Ordering::Relaxed);
        told
    };
    let ending = async {
        let mut count = 0;
        while !over.load(Ordering::Relaxed) {
            count += end().await?;
        }
        Ok::<_, Stop>(count)
    };
    let (told, count) = tokio::join!(asking, ending);
    Ok((told, count?))
}
