//! Starts a private server and runs a command with the server's URL in `DLOCK_URL`:
//!
//! ```text
//! with_server redis dlock doctor
//! ```
//!
//! Its exit status is that of the command. The environment variables that choose the programs for
//! the tests have the same effect here.

use std::{env, process::ExitCode};

use dlock_testlab::{
    Stop, etcd, mariadb, postgres, redis,
    zookeeper::{self, Ensemble, ZooKeeperServer},
};
use tokio::process::Command;

const USAGE: &str = "usage: with_server \
    redis|sentinel|cluster|quorum|postgres|pgbouncer|mariadb|zookeeper|ensemble|etcd|etcd-ensemble \
    COMMAND [ARGUMENT...]";

#[tokio::main]
async fn main() -> ExitCode {
    let mut words = env::args().skip(1);
    let (Some(kind), Some(program)) = (words.next(), words.next()) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let mut command = Command::new(program);
    command.args(words);
    match with_server(&kind, command).await {
        Ok(code) => ExitCode::from(code),
        Err(stop) => {
            eprintln!("{}", stop.into_text());
            ExitCode::from(2)
        }
    }
}

/// Starts a server and runs the command. The server lives until the command has ended.
async fn with_server(kind: &str, command: Command) -> Result<u8, Stop> {
    let redis = redis::Options::new();
    let zookeeper = zookeeper::Options::new().with_words("srvr,conf");
    match kind {
        "redis" => {
            let server = redis::RedisServer::start(&redis).await?;
            run(command, &server.url()).await
        }
        "sentinel" => {
            let servers = redis::RedisSentinel::start(&redis).await?;
            run(command, &servers.url()).await
        }
        "cluster" => {
            let servers = redis::RedisCluster::start(&redis).await?;
            run(command, &servers.url()).await
        }
        "quorum" => {
            let servers = redis::RedisMasters::start(5, &redis).await?;
            // The masters have just been started, so no lock can be held.
            run(command, &format!("{}?dlock.restart_guard=0s", servers.url())).await
        }
        "postgres" => {
            let server = postgres::PostgresServer::start(&postgres::Options::new()).await?;
            run(command, &format!("{}?dlock.create_schema=true", server.url())).await
        }
        "pgbouncer" => {
            let server = postgres::PostgresServer::start(&postgres::Options::new()).await?;
            let bouncer = postgres::PgBouncer::start(&server, &[]).await?;
            let options = "dlock.pooler=true&dlock.create_schema=true";
            run(command, &format!("{}?{options}", bouncer.url())).await
        }
        "mariadb" => {
            let server = mariadb::MariadbServer::start(&mariadb::Options::new()).await?;
            run(command, &format!("{}?dlock.create_schema=true", server.url())).await
        }
        "zookeeper" => {
            let server = ZooKeeperServer::start(&zookeeper).await?;
            run(command, &format!("zk://{}", server.address())).await
        }
        "ensemble" => {
            let servers = Ensemble::start(&zookeeper).await?;
            run(command, &format!("zk://{}", servers.connect_string())).await
        }
        "etcd" => {
            let server = etcd::EtcdServer::start(&etcd::Options::new()).await?;
            run(command, &server.url()).await
        }
        "etcd-ensemble" => {
            let servers = etcd::Ensemble::start(&etcd::Options::new()).await?;
            run(command, &servers.url()).await
        }
        _ => Err(Stop::failed(USAGE)),
    }
}

async fn run(mut command: Command, url: &str) -> Result<u8, Stop> {
    let status = command.env("DLOCK_URL", url).status().await?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
