//! One server behind a proxy.

use std::time::Duration;

use async_trait::async_trait;
use dlock_testkit::{Stop, Verdict, support::connected};
use dlock_testlab::{
    Protocol, Proxy, Snapshot, SteppedClock,
    etcd::EtcdServer,
    mariadb::{self, MariadbServer},
    postgres::{self, PostgresServer},
    redis::{self, Persistence, RedisServer},
    zookeeper::ZooKeeperServer,
};
use tokio::time::sleep;

use super::{
    Connect, Effect, Fault, Outages, Topology,
    ensemble::{self, LONGEST, etcd_options, zookeeper_options},
    is_restarted, is_stopped, many_locks,
    network::Network,
    redis::{OPTIONS, without_guard},
    some, with_sessions,
};
use crate::plan::Load;

/// The retention of rows where clocks step: tokens stay in order only if a step back is shorter than
/// the retention. Otherwise records of free locks are deleted soon, which is checked.
const KEPT: &str = "&dlock.retention=10m";
const FORGOTTEN: &str = "&dlock.retention=1s";

/// The longest outage of a store without sessions, after which leases have expired.
const SHORT: Duration = Duration::from_millis(1500);

/// The number of retries of a request that a server did not answer.
const TRIES: u32 = 20;

/// A record that is lost with all others.
const MARK: &str = "soak_mark";

/// One server behind a proxy.
#[derive(Debug)]
pub(crate) struct Single {
    server: Server,
    network: Network,
    outages: Outages,
    /// Its clock, if it is stepped.
    clock: Option<SteppedClock>,
    /// The data with which it restarts, if it forgets its own.
    copy: Option<Snapshot>,
    /// Whether it must not grant anything before the leases that it forgot have expired.
    is_guarded: bool,
}

#[derive(Debug)]
enum Server {
    Redis(RedisServer),
    Postgres(PostgresServer),
    Mysql(MariadbServer),
    ZooKeeper(ZooKeeperServer),
    Etcd(EtcdServer),
}

/// Calls the same method of any kind.
macro_rules! each {
    ($of:expr, $server:ident => $call:expr) => {
        match $of {
            Server::Redis($server) => $call,
            Server::Postgres($server) => $call,
            Server::Mysql($server) => $call,
            Server::ZooKeeper($server) => $call,
            Server::Etcd($server) => $call,
        }
    };
}

impl Single {
    /// Starts a server of this store so that these faults can be injected.
    pub(crate) async fn start(
        store: &str,
        is_guarded: bool,
        faults: &[Fault],
        connect: &Connect,
    ) -> Result<Self, Stop> {
        let forgets = faults.contains(&Fault::ServerEmptied);
        let steps = faults.iter().any(|fault| Fault::CLOCK.contains(fault));
        let clock = if steps { Some(SteppedClock::start().await?) } else { None };
        let server = Server::start(store, forgets, clock.as_ref()).await?;
        let protocol = match server {
            Server::Redis(_) => Some(Protocol::Redis),
            Server::Postgres(_) => Some(Protocol::Postgres),
            Server::Mysql(_) => None,
            Server::ZooKeeper(_) => Some(Protocol::ZooKeeper),
            Server::Etcd(_) => Some(Protocol::Etcd),
        };
        let proxy = match protocol {
            Some(protocol) => Proxy::start_for(&server.address(), protocol).await?,
            None => Proxy::start(&server.address()).await?,
        };
        let network = Network::over(proxy);
        let outages = Outages::up_to(server.longest());
        let mut single = Self { server, network, outages, clock, copy: None, is_guarded };
        if forgets {
            // A database without its tables would be useless.
            drop(connected(|| connect(single.direct_url())).await?);
            single.copy = Some(single.server.snapshot().await?);
        }
        Ok(single)
    }

    /// Steps the clock this many times, alternately forward and back, and then resets it.
    async fn step_clock(&self, by: Duration, ahead: bool, times: u32) -> Result<Effect, Stop> {
        let Some(clock) = &self.clock else {
            return Ok(Effect::Missed("this server has the clock of the machine".to_owned()));
        };
        let right = self.server.seconds().await?;
        let mut seen = false;
        for turn in 0..times {
            if ahead == (turn % 2 == 0) {
                clock.forward(by)?;
            } else {
                clock.back(by)?;
            }
            let off = (self.server.seconds().await? - right).abs();
            seen |= off > by.as_secs_f64() * 0.75;
            sleep(if times == 1 { some(300, 900) } else { Duration::from_millis(25) }).await;
        }
        clock.reset()?;
        Ok(Effect::seen(seen, "the server's clock did not step"))
    }
}

#[async_trait]
impl Topology for Single {
    fn url(&self) -> String {
        self.direct_url().replace(&self.server.address(), &self.network.address())
    }

    fn direct_url(&self) -> String {
        let mut options = OPTIONS.to_owned();
        if matches!(self.server, Server::Postgres(_) | Server::Mysql(_)) {
            options += if self.clock.is_some() { KEPT } else { FORGOTTEN };
        }
        if self.is_guarded {
            let guard = self.load().longest_lease().as_millis();
            options += &format!("&dlock.restart_guard={guard}ms");
        }
        self.server.url(&options)
    }

    async fn inject(&self, fault: Fault) -> Result<Effect, Stop> {
        const FAR: Duration = Duration::from_secs(60);
        const NEAR: Duration = Duration::from_millis(200);
        let server = &self.server;
        match fault {
            Fault::ServerStopped => {
                each!(server, server => server.pause()?);
                sleep(self.outages.next()).await;
                let stopped = is_stopped(server.pid());
                each!(server, server => server.resume()?);
                Ok(Effect::seen(stopped, "the server was not stopped"))
            }
            Fault::ServerKilled => {
                let before = server.pid();
                each!(server, server => server.kill());
                sleep(some(0, 300)).await;
                each!(server, server => server.restart().await?);
                Ok(Effect::seen(is_restarted(before, server.pid()), "the server was not killed"))
            }
            Fault::ServerEmptied => {
                let Some(copy) = &self.copy else {
                    return Ok(Effect::Missed("this server keeps its data".to_owned()));
                };
                server.mark().await?;
                server.forget(copy).await?;
                Ok(Effect::seen(!server.is_marked().await?, "the server kept its data"))
            }
            Fault::SessionsEnded => {
                Ok(Effect::seen(server.end_sessions().await? > 0, "there was no session to end"))
            }
            Fault::ScriptsForgotten => server.forget_scripts().await,
            Fault::ClockAhead => self.step_clock(FAR, true, 1).await,
            Fault::ClockBehind => self.step_clock(FAR, false, 1).await,
            Fault::ClockStrobing => self.step_clock(NEAR, true, 20).await,
            _ => self.network.inject(fault, &self.outages).await,
        }
    }

    fn is_swept_by_clients(&self) -> bool {
        // A claim with a session belongs to it, so no client has to sweep.
        !self.server.has_sessions()
    }

    async fn left(&self) -> Result<Vec<String>, Stop> {
        let mut left = self.server.open_transactions().await?;
        left.extend(self.server.records(self.clock.is_none()).await?);
        Ok(left)
    }

    async fn connections(&self) -> Result<usize, Stop> {
        match &self.server {
            Server::Redis(server) => server.connections().await,
            Server::Postgres(server) => server.connections().await,
            Server::Mysql(server) => server.connections().await,
            Server::ZooKeeper(_) | Server::Etcd(_) => Ok(0),
        }
    }

    fn load(&self) -> Load {
        if self.server.has_sessions() { with_sessions() } else { many_locks() }
    }
}

impl Server {
    async fn start(store: &str, forgets: bool, clock: Option<&SteppedClock>) -> Result<Self, Stop> {
        Ok(match store {
            "redis" => {
                let kept = if forgets { Persistence::None } else { Persistence::AofAlways };
                let options = redis::Options::new().with_persistence(kept);
                let options = clock.iter().fold(options, |all, clock| all.with_clock(clock));
                Self::Redis(RedisServer::start(&options).await?)
            }
            "postgres" => {
                let options = postgres::Options::new();
                let options = clock.iter().fold(options, |all, clock| all.with_clock(clock));
                Self::Postgres(PostgresServer::start(&options).await?)
            }
            "mysql" => {
                let options = mariadb::Options::new();
                let options = clock.iter().fold(options, |all, clock| all.with_clock(clock));
                Self::Mysql(MariadbServer::start(&options).await?)
            }
            "zk" => Self::ZooKeeper(ZooKeeperServer::start(&zookeeper_options(&[])).await?),
            _ => Self::Etcd(EtcdServer::start(&etcd_options()).await?),
        })
    }

    /// Returns a URL with these options that fit short leases.
    fn url(&self, options: &str) -> String {
        let url = match self {
            Self::Redis(server) => return format!("{}?{options}", server.url()),
            Self::Postgres(server) => server.url(),
            Self::Mysql(server) => server.url(),
            Self::ZooKeeper(server) => return ensemble::url("zk", &server.address()),
            Self::Etcd(server) => return ensemble::url("etcd", &server.address()),
        };
        let and = if url.contains('?') { '&' } else { '?' };
        format!("{url}{and}{options}&dlock.create_schema=true")
    }

    fn address(&self) -> String {
        each!(self, server => server.address())
    }

    fn pid(&self) -> Option<u32> {
        each!(self, server => server.pid())
    }

    fn has_sessions(&self) -> bool {
        matches!(self, Self::ZooKeeper(_) | Self::Etcd(_))
    }

    fn longest(&self) -> Duration {
        if self.has_sessions() { LONGEST } else { SHORT }
    }

    async fn snapshot(&self) -> Result<Snapshot, Stop> {
        match self {
            Self::Redis(server) => server.snapshot().await,
            Self::Postgres(server) => server.snapshot().await,
            Self::Mysql(server) => server.snapshot().await,
            Self::Etcd(server) => server.snapshot().await,
            Self::ZooKeeper(_) => Err(Stop::failed("there is no copy of its data")),
        }
    }

    /// Kills the server and starts it again with this data.
    async fn forget(&self, copy: &Snapshot) -> Verdict {
        match self {
            Self::Redis(server) => server.restart_from(copy).await,
            Self::Postgres(server) => server.restart_from(copy).await,
            Self::Mysql(server) => server.restart_from(copy).await,
            Self::Etcd(server) => server.restart_from(copy).await,
            Self::ZooKeeper(_) => Err(Stop::failed("there is no copy of its data")),
        }
    }

    /// Makes the server write a record of its own.
    async fn mark(&self) -> Verdict {
        match self {
            Self::Redis(server) => server.command(&["SET", MARK, "1"]).await?.ok().map(drop),
            _ => self.query(&format!("CREATE TABLE IF NOT EXISTS {MARK} (n int)")).await.map(drop),
        }
    }

    /// Whether the server still has its record.
    async fn is_marked(&self) -> Result<bool, Stop> {
        if let Self::Redis(server) = self {
            return Ok(server.command(&["EXISTS", MARK]).await?.int()? > 0);
        }
        let tables = format!("SELECT 1 FROM information_schema.tables WHERE table_name = '{MARK}'");
        Ok(!self.query(&tables).await?.is_empty())
    }

    async fn end_sessions(&self) -> Result<usize, Stop> {
        match self {
            Self::Redis(server) => Ok(usize::try_from(server.kill_clients().await?)?),
            Self::Postgres(server) => server.terminate_backends().await,
            Self::Mysql(server) => server.terminate_backends().await,
            Self::ZooKeeper(_) | Self::Etcd(_) => Ok(0),
        }
    }

    async fn forget_scripts(&self) -> Result<Effect, Stop> {
        let Self::Redis(server) = self else {
            return Ok(Effect::Missed("this server has no scripts".to_owned()));
        };
        // A script that no client uses stays away once it is removed.
        let script = server.command(&["SCRIPT", "LOAD", "return 'soak'"]).await?.text()?;
        server.flush_scripts().await?;
        let known = server.command(&["SCRIPT", "EXISTS", &script]).await?.list()?;
        let is_known = known.into_iter().any(|known| known.int().is_ok_and(|known| known > 0));
        Ok(Effect::seen(!is_known, "the server kept its scripts"))
    }

    /// Returns the server's clock in seconds.
    async fn seconds(&self) -> Result<f64, Stop> {
        let sql = match self {
            Self::Redis(server) => {
                let time = server.command(&["TIME"]).await?.texts()?;
                let (seconds, micros) = (time[0].parse::<f64>()?, time[1].parse::<f64>()?);
                return Ok(seconds + micros / 1e6);
            }
            Self::Postgres(_) => "SELECT extract(epoch FROM clock_timestamp())",
            _ => "SELECT UNIX_TIMESTAMP(SYSDATE(6))",
        };
        let rows = self.query(sql).await?;
        let seconds = rows.first().and_then(|row| row.first());
        Ok(seconds.ok_or_else(|| Stop::failed("the server has no clock"))?.parse()?)
    }

    async fn query(&self, sql: &str) -> Result<Vec<Vec<String>>, Stop> {
        patiently(|| async move {
            match self {
                Self::Postgres(server) => server.query(sql).await,
                Self::Mysql(server) => server.query(sql).await,
                _ => Err(Stop::failed("the server has no SQL")),
            }
        })
        .await
    }

    /// Returns the transactions that clients began and did not end.
    async fn open_transactions(&self) -> Result<Vec<String>, Stop> {
        let open = patiently(|| async move {
            match self {
                Self::Postgres(server) => server.open_transactions().await,
                Self::Mysql(server) => server.open_transactions().await,
                _ => Ok(Vec::new()),
            }
        });
        Ok(open.await?.iter().map(|open| format!("a transaction: {open}")).collect())
    }

    /// Returns the records of locks that are in use; with `all`, also those of free locks.
    async fn records(&self, all: bool) -> Result<Vec<String>, Stop> {
        match self {
            Self::Redis(server) => {
                let mut keys = without_guard(server.keys("*").await?);
                keys.retain(|key| all || !key.contains("}f:"));
                Ok(keys)
            }
            Self::Postgres(_) | Self::Mysql(_) if all => {
                let rows = self.query("SELECT name, snap, log FROM dlock_lock").await?;
                Ok(rows.iter().map(|row| format!("a row: {}", row.join(" "))).collect())
            }
            Self::Postgres(_) | Self::Mysql(_) => Ok(Vec::new()),
            Self::ZooKeeper(server) => server.nodes_under("/").await,
            Self::Etcd(server) => server.keys_under("").await,
        }
    }
}

/// Queries a server, and retries if it is too busy to answer at once.
async fn patiently<T, F>(ask: impl Fn() -> F) -> Result<T, Stop>
where
    F: Future<Output = Result<T, Stop>>,
{
    let mut tries = 0;
    loop {
        let answer = ask().await;
        if answer.is_ok() || tries == TRIES {
            return answer;
        }
        tries += 1;
        sleep(Duration::from_millis(250)).await;
    }
}
