//! The private servers: that they do what tests rely on, and leave nothing behind.

#![cfg(unix)]

mod clock;
mod counts;
mod ensemble;
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

use std::time::Duration;

use dlock_testkit::{Verdict, judge};
use rustix::process::{Pid, test_kill_process};
use tokio::{
    runtime::Builder,
    time::{sleep, timeout},
};

/// Runs a test that needs a Redis server.
fn with_redis(test: impl Future<Output = Verdict>) {
    with("redis", test);
}

/// Runs a test that needs this server; without one it ends early, unless it must not.
fn with(server: &str, test: impl Future<Output = Verdict>) {
    let runtime = Builder::new_multi_thread().enable_all().build().expect("a runtime");
    judge(server, runtime.block_on(test));
}

/// Whether the process is there, were it only to be reaped.
fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid).is_ok())
}

/// Waits until the process is gone that was a child of a server. Nobody may ever reap it.
async fn gone(pid: u32) {
    let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let wait = async {
        while is_alive(pid) && !state().contains(") Z ") {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(20), wait).await.expect("the child of a server ends");
}
