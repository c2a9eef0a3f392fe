//! Error messages for ports that may not belong to Redis, and for renamed commands.

use dlock_core::ErrorKind;
use dlock_testlab::redis::{Options, RedisServer};
use tokio::net::TcpListener;

use crate::support::{refused, run, says};

#[test]
fn the_error_of_a_foreign_port_asks_whether_it_is_redis() {
    run(async {
        for (scheme, closes) in [("redis", true), ("redis", false), ("redis+cluster", true)] {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let url = format!("{scheme}://{}?dlock.response_timeout=200ms", listener.local_addr()?);
            let listens = async {
                let mut kept = Vec::new();
                loop {
                    let accepted = listener.accept().await;
                    kept.extend(accepted.ok().filter(|_| !closes));
                }
            };
            let error = tokio::select! {
                error = refused(&url) => error?,
                () = listens => unreachable!(),
            };
            says(&error, ErrorKind::Unavailable, "Redis or Valkey");
            let first = if closes { "maxclients" } else { "no answer from the server in time" };
            says(&error, ErrorKind::Unavailable, first);
        }
        Ok(())
    })
}

#[test]
fn a_renamed_command_is_named() {
    run(async {
        for command in ["EVAL", "EVALSHA"] {
            let line = format!("rename-command {command} hidden");
            let server = RedisServer::start(&Options::new().with_config(&line)).await?;
            let error = refused(&server.url()).await?;
            says(&error, ErrorKind::Unsupported, "rename-command");
            assert!(error.to_string().contains(command), "{error}");
        }
        Ok(())
    })
}
