//! One server of Redis, PostgreSQL or MariaDB.

use std::time::Duration;

use async_trait::async_trait;
use dlock_testkit::{Stop, Verdict};
use dlock_testlab::{
    Protocol, Proxy, Snapshot, SteppedClock,
    mariadb::{self, MariadbServer},
    postgres::{self, PostgresServer},
    redis::{self, Persistence, RedisServer},
};
use tokio::time::sleep;

use super::{Effect, Fault, Network, Topology, some};
use crate::command::connect;

/// The retention of last tokens where clocks step: tokens stay in order only if a step back is
/// shorter than the retention.
const KEPT: &str = "10m";
/// The retention where all records must be deleted in the end.
const FORGOTTEN: &str = "1s";

/// The number of retries of a request that a server did not answer.
const TRIES: u32 = 20;

/// One server behind a proxy, with a clock that can be stepped.
pub(super) struct Single {
    server: Server,
    network: Network,
    clock: SteppedClock,
    /// The data with which it restarts, if it forgets its own. If so, its clock is never stepped.
    copy: Option<Snapshot>,
}

enum Server {
    Redis(RedisServer),
    Postgres(PostgresServer),
    Mysql(MariadbServer),
}

impl Single {
    pub(super) async fn start(store: &str, forgets: bool) -> Result<Self, Stop> {
        let clock = SteppedClock::start().await?;
        let server = match store {
            "redis" => {
                let kept = if forgets { Persistence::None } else { Persistence::AofAlways };
                let options = redis::Options::new().with_persistence(kept).with_clock(&clock);
                Server::Redis(RedisServer::start(&options).await?)
            }
            "postgres" => {
                let options = postgres::Options::new().with_clock(&clock);
                Server::Postgres(PostgresServer::start(&options).await?)
            }
            _ => {
                let options = mariadb::Options::new().with_clock(&clock);
                Server::Mysql(MariadbServer::start(&options).await?)
            }
        };
        let address = server.address();
        let proxy = match &server {
            Server::Redis(_) => Proxy::start_for(&address, Protocol::Redis).await?,
            Server::Postgres(_) => Proxy::start_for(&address, Protocol::Postgres).await?,
            Server::Mysql(_) => Proxy::start(&address).await?,
        };
        let copy = match forgets {
            false => None,
            true => {
                // A database without its tables would be useless.
                drop(connect(server.url(FORGOTTEN)).await?);
                Some(server.snapshot().await?)
            }
        };
        Ok(Self { server, network: Network::over(proxy), clock, copy })
    }

    /// Steps the clock this many times, alternately forward and back, and then resets it.
    async fn step_clock(&self, by: Duration, ahead: bool, times: u32) -> Result<Effect, Stop> {
        let clock = &self.clock;
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
        Ok(match seen {
            true => Effect::Proven,
            false => Effect::Missed("the server's clock did not step".to_owned()),
        })
    }
}

#[async_trait]
impl Topology for Single {
    fn url(&self) -> String {
        self.direct_url().replace(&self.server.address(), &self.network.address())
    }

    fn direct_url(&self) -> String {
        self.server.url(if self.copy.is_some() { FORGOTTEN } else { KEPT })
    }

    fn faults(&self) -> Vec<Fault> {
        use Fault::{
            ClockAhead, ClockBehind, ClockStrobing, PushesLost, ScriptsForgotten, ServerEmptied,
            ServerKilled, ServerStopped, SessionsEnded,
        };
        let mut faults = [&Fault::HOLDERS[..], &Fault::NETWORK[..]].concat();
        faults.extend([ServerStopped, SessionsEnded]);
        match self.copy {
            Some(_) => faults.push(ServerEmptied),
            None => faults.extend([ServerKilled, ClockAhead, ClockBehind, ClockStrobing]),
        }
        match self.server {
            Server::Redis(_) => faults.extend([PushesLost, ScriptsForgotten]),
            Server::Postgres(_) => faults.push(PushesLost),
            Server::Mysql(_) => {}
        }
        faults
    }

    async fn inject(&self, fault: Fault) -> Result<Effect, Stop> {
        const FAR: Duration = Duration::from_secs(60);
        const NEAR: Duration = Duration::from_millis(200);
        match fault {
            Fault::ServerStopped => {
                self.server.pause()?;
                sleep(some(50, 900)).await;
                self.server.resume()?;
            }
            Fault::ServerKilled => self.server.restart().await?,
            Fault::ServerEmptied => match &self.copy {
                Some(copy) => self.server.forget(copy).await?,
                None => return Ok(Effect::Missed("this server keeps what it has".to_owned())),
            },
            Fault::SessionsEnded => {
                if self.server.end_sessions().await? == 0 {
                    return Ok(Effect::Missed("there was no session to end".to_owned()));
                }
            }
            Fault::ScriptsForgotten => {
                if let Server::Redis(server) = &self.server {
                    server.flush_scripts().await?;
                }
            }
            Fault::ClockAhead => return self.step_clock(FAR, true, 1).await,
            Fault::ClockBehind => return self.step_clock(FAR, false, 1).await,
            Fault::ClockStrobing => return self.step_clock(NEAR, true, 20).await,
            _ => return self.network.inject(fault).await,
        }
        Ok(Effect::Proven)
    }

    async fn left(&self) -> Result<Vec<String>, Stop> {
        let mut left = self.server.open_transactions().await?;
        left.extend(self.server.records(self.copy.is_some()).await?);
        Ok(left)
    }

    async fn connections(&self) -> Result<usize, Stop> {
        match &self.server {
            Server::Redis(server) => server.connections().await,
            Server::Postgres(server) => server.connections().await,
            Server::Mysql(server) => server.connections().await,
        }
    }
}

impl Server {
    /// Returns a URL with options that fit short leases, and with this retention.
    fn url(&self, retention: &str) -> String {
        let (url, options) = match self {
            Self::Redis(server) => (server.url(), ""),
            Self::Postgres(server) => (server.url(), "&dlock.create_schema=true"),
            Self::Mysql(server) => (server.url(), "&dlock.create_schema=true"),
        };
        let and = if url.contains('?') { '&' } else { '?' };
        format!("{url}{and}dlock.response_timeout=500ms&dlock.retention={retention}{options}")
    }

    fn address(&self) -> String {
        match self {
            Self::Redis(server) => server.address(),
            Self::Postgres(server) => server.address(),
            Self::Mysql(server) => server.address(),
        }
    }

    fn pause(&self) -> Verdict {
        match self {
            Self::Redis(server) => server.pause(),
            Self::Postgres(server) => server.pause(),
            Self::Mysql(server) => server.pause(),
        }
    }

    fn resume(&self) -> Verdict {
        match self {
            Self::Redis(server) => server.resume(),
            Self::Postgres(server) => server.resume(),
            Self::Mysql(server) => server.resume(),
        }
    }

    /// Kills the server and starts it again.
    async fn restart(&self) -> Verdict {
        match self {
            Self::Redis(server) => server.restart().await,
            Self::Postgres(server) => server.restart().await,
            Self::Mysql(server) => server.restart().await,
        }
    }

    async fn snapshot(&self) -> Result<Snapshot, Stop> {
        match self {
            Self::Redis(server) => server.snapshot().await,
            Self::Postgres(server) => server.snapshot().await,
            Self::Mysql(server) => server.snapshot().await,
        }
    }

    /// Kills the server and starts it again with this data.
    async fn forget(&self, copy: &Snapshot) -> Verdict {
        match self {
            Self::Redis(server) => server.restart_from(copy).await,
            Self::Postgres(server) => server.restart_from(copy).await,
            Self::Mysql(server) => server.restart_from(copy).await,
        }
    }

    async fn end_sessions(&self) -> Result<usize, Stop> {
        match self {
            Self::Redis(server) => Ok(usize::try_from(server.kill_clients().await?)?),
            Self::Postgres(server) => server.terminate_backends().await,
            Self::Mysql(server) => server.terminate_backends().await,
        }
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
            Self::Mysql(_) => "SELECT UNIX_TIMESTAMP(SYSDATE(6))",
        };
        let rows = self.query(sql).await?;
        let seconds = rows.first().and_then(|row| row.first());
        Ok(seconds.ok_or_else(|| Stop::failed("the server has no clock"))?.parse()?)
    }

    async fn query(&self, sql: &str) -> Result<Vec<Vec<String>>, Stop> {
        patiently(|| async move {
            match self {
                Self::Redis(_) => Err(Stop::failed("Redis has no SQL")),
                Self::Postgres(server) => server.query(sql).await,
                Self::Mysql(server) => server.query(sql).await,
            }
        })
        .await
    }

    /// Returns the transactions that clients began and did not end.
    async fn open_transactions(&self) -> Result<Vec<String>, Stop> {
        let open = patiently(|| async move {
            match self {
                Self::Redis(_) => Ok(Vec::new()),
                Self::Postgres(server) => server.open_transactions().await,
                Self::Mysql(server) => server.open_transactions().await,
            }
        });
        Ok(open.await?.iter().map(|open| format!("a transaction: {open}")).collect())
    }

    /// Returns the records of locks that are in use; with `all`, also those of free locks.
    async fn records(&self, all: bool) -> Result<Vec<String>, Stop> {
        if let Self::Redis(server) = self {
            let mut keys = server.keys("*").await?;
            keys.retain(|key| all || !key.contains("}f:"));
            return Ok(keys);
        }
        if !all {
            return Ok(Vec::new());
        }
        let rows = self.query("SELECT name, snap, log FROM dlock_lock").await?;
        Ok(rows.iter().map(|row| format!("a row: {}", row.join(" "))).collect())
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
