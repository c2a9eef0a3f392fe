//! The connection to the servers.
//!
//! # Host names
//!
//! The driver tries one entry of its list after the other, each for its connection timeout. For a
//! name, it connects to the first address, and tries the next one only if that refuses. So an
//! address that swallows packets would hide the others, and a session over a name that stands for
//! all members would stay with one of them. A name with several addresses is therefore listed with
//! each address. The name itself stays in the list: the driver resolves it at each reconnect, so
//! addresses that are new are found. The next session resolves all names again.
//!
//! With TLS only the names are listed, since the driver checks that a certificate is for the entry
//! that it has connected to. An address comes from a name server, which is not trusted to say which
//! certificates are right.
//!
//! # The driver's task
//!
//! The driver panics in the caller that waits for the event of a watch if its task is dropped
//! meanwhile, which happens when the runtime ends. So the driver's task is started here, and events
//! are awaited here: no event is polled during or after the end of the task.
//!
//! # Concurrency
//!
//! `Alive` is a flag under a lock. The task unsets it before it drops the driver; a poll of an event
//! reads it, and keeps the lock for reading until it returns. The driver's end wakes the callers,
//! which then find the flag unset.

use std::{
    collections::BTreeSet,
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use dlock_core::Error;
use futures_util::future::join_all;
use parking_lot::RwLock;
use spawns_core::{Spawn, Task};
use tokio::{net::lookup_host, runtime::Handle, time::timeout};
use zookeeper_client::{Client, Error as ZkError, OneshotWatcher, WatchedEvent};

use crate::{
    config::ZkConfig,
    error::{explain, is_over, is_unknown},
};

/// The longest time until there is a session.
const LONGEST: Duration = Duration::from_secs(10);

/// Opens the connection, and a session on it.
pub(crate) async fn connect(
    config: &ZkConfig,
    timeout: Duration,
    runtime: &Handle,
) -> Result<(Client, Alive), Error> {
    let entries = match &config.tls {
        None => entries(&config.hosts).await,
        Some(_) => config.hosts.clone(),
    };
    let limit = timeout.min(LONGEST);
    let connector = Client::connector()
        .with_session_timeout(timeout)
        .with_connection_timeout(per_server(timeout, limit, entries.len()))
        .with_fail_eagerly();
    let cluster = config.cluster(&entries);
    let opening = async {
        let client = match &config.tls {
            None => connector.connect(&cluster).await.map_err(explain)?,
            Some(tls) => crate::tls::connect(connector, tls, &cluster).await?,
        };
        if let Some(login) = &config.login {
            // Not during the connect: a server with Netty, which every server with TLS uses, may
            // answer the credentials first, and the driver takes that for an invalid answer. At a
            // reconnect the driver sends them again on its own, and retries until it works.
            client.auth("digest", login.as_bytes()).await.map_err(explain)?;
        }
        Ok(client)
    };
    let late = |_| {
        let explain = if config.tls.is_some() { crate::tls::explain } else { explain };
        Err(explain(ZkError::Timeout))
    };
    let (opened, alive) = Alive::open(runtime.clone(), tokio::time::timeout(limit, opening)).await;
    Ok((opened.unwrap_or_else(late)?, alive))
}

/// Returns how long a server may stay silent, during a connect and later.
///
/// If a server goes silent when a renewal is due, a third of the session timeout is left of the lease.
/// An eighth is enough to notice that, and to pass over one more silent server. It is not less than a
/// second if possible, since a healthy server may pause for that long. At the start, each server gets
/// its turn before the `limit`.
fn per_server(timeout: Duration, limit: Duration, servers: usize) -> Duration {
    let servers = u32::try_from(servers).unwrap_or(u32::MAX).max(1);
    let least = (timeout / 5).min(Duration::from_secs(1));
    (timeout / 8).max(least).min(limit / servers.saturating_add(1)).max(Duration::from_millis(100))
}

/// The servers behind a session, as far as the client can see them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Servers {
    /// The number of voters. `None` if it is not visible.
    pub(crate) voters: Option<usize>,
    /// Whether there certainly is a single standalone server: no other server, such as an observer,
    /// serves its sessions or can be added.
    pub(crate) is_alone: bool,
}

/// Reads the configuration of the servers.
pub(crate) async fn servers(client: &Client) -> Result<Servers, Error> {
    let config = tokio::time::timeout(client.session_timeout(), client.get_config()).await;
    match config.unwrap_or(Err(ZkError::Timeout)) {
        Ok((config, _)) => Ok(Servers::read(&String::from_utf8_lossy(&config))),
        Err(error) if is_unknown(&error) || is_over(&error) => Err(explain(error)),
        Err(_) => Ok(Servers { voters: None, is_alone: false }),
    }
}

impl Servers {
    /// Parses the configuration that they share. A standalone server has none. A single voter may
    /// have observers, and more voters later.
    fn read(config: &str) -> Self {
        let servers = config.lines().filter(|line| line.starts_with("server."));
        let voters = servers.filter(|line| !line.contains(":observer")).count();
        Self { voters: Some(voters.max(1)), is_alone: config.trim().is_empty() }
    }
}

/// How long a name server may take. Then the driver resolves the name itself.
pub(crate) const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns the entries for the driver's list, each as `host:port`.
pub(crate) async fn entries(hosts: &[String]) -> Vec<String> {
    let entries = hosts.iter().map(async |host| {
        let found = timeout(LOOKUP_TIMEOUT, lookup_host(host)).await;
        let addresses: BTreeSet<_> = found.into_iter().flatten().flatten().collect();
        let mut entries = vec![host.clone()];
        if addresses.len() > 1 {
            entries.extend(addresses.iter().map(ToString::to_string));
        }
        entries
    });
    join_all(entries).await.concat()
}

/// Whether the driver's task exists.
#[derive(Clone)]
pub(crate) struct Alive(Arc<RwLock<bool>>);

impl Alive {
    /// Opens a client, whose task runs on this runtime.
    pub(crate) async fn open<T>(runtime: Handle, opening: impl Future<Output = T>) -> (T, Self) {
        let alive = Self(Arc::new(RwLock::new(true)));
        let spawner = Spawner { runtime, alive: alive.clone() };
        let mut opening = pin!(opening);
        let opened = poll_fn(|cx| {
            let _scope = spawns_core::enter(&spawner);
            opening.as_mut().poll(cx)
        });
        (opened.await, alive)
    }

    /// Waits for the event of a watch. `None` if the driver has ended.
    pub(crate) async fn event(self, watcher: OneshotWatcher) -> Option<WatchedEvent> {
        let mut changed = pin!(watcher.changed());
        poll_fn(|cx| {
            let is_alive = self.0.read();
            if !*is_alive {
                return Poll::Ready(None);
            }
            changed.as_mut().poll(cx).map(Some)
        })
        .await
    }
}

/// Starts the tasks of the driver.
struct Spawner {
    runtime: Handle,
    alive: Alive,
}

impl Spawn for Spawner {
    fn spawn(&self, task: Task) {
        let work = Some(Box::into_pin(task.future));
        self.runtime.spawn(DriverTask { work, alive: self.alive.clone() });
    }
}

struct DriverTask {
    work: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    alive: Alive,
}

impl Future for DriverTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.work {
            Some(work) => work.as_mut().poll(cx),
            None => Poll::Ready(()),
        }
    }
}

impl Drop for DriverTask {
    fn drop(&mut self) {
        *self.alive.0.write() = false;
        self.work = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_server_without_a_configuration_is_alone() {
        let one = "server.1=10.0.0.1:2888:3888:participant;0.0.0.0:2181\n";
        let observer = "server.2=10.0.0.2:2888:3888:observer;0.0.0.0:2181\n";
        let other = "server.3=10.0.0.3:2888:3888\n";
        let version = "version=0";
        for (config, voters, is_alone) in [
            (String::new(), 1, true),
            (format!("{one}{version}"), 1, false),
            (format!("{one}{observer}{version}"), 1, false),
            (format!("{one}{observer}{other}{version}"), 2, false),
            (version.to_owned(), 1, false),
        ] {
            let expected = Servers { voters: Some(voters), is_alone };
            assert_eq!(Servers::read(&config), expected, "{config}");
        }
    }

    #[tokio::test]
    async fn addresses_and_unknown_names_stay_as_they_are() {
        let hosts = ["127.0.0.1:2181", "[::1]:2181", "zookeeper.invalid:2181"];
        let hosts = hosts.map(str::to_owned);
        assert_eq!(entries(&hosts).await, hosts);
    }
}
