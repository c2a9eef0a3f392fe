//! The message as a notification of PostgreSQL: one connection runs `NOTIFY`, and another one
//! listens.

use std::time::Duration;

use sqlx::{
    ConnectOptions,
    postgres::{PgConnectOptions, PgConnection, PgListener, PgPoolOptions},
};

use super::{Trip, pause};
use crate::{Failure, clock};

/// A database without dlock. Each notification wakes every listener of its database, so in dlock's
/// database the ring and dlock would slow each other down. This one exists on every server.
const DATABASE: &str = "postgres";
/// The time to wait for messages that are still pending after a run.
const STRAGGLERS: Duration = Duration::from_millis(50);

/// A place in the ring.
pub(super) struct PostgresRing {
    listens: PgListener,
    sends: PgConnection,
}

impl PostgresRing {
    /// Starts to listen at this place.
    pub(super) async fn join(url: &str, place: &str) -> Result<Self, Failure> {
        let options = url.parse::<PgConnectOptions>()?.database(DATABASE);
        let pool = PgPoolOptions::new().max_connections(1).connect_with(options.clone()).await?;
        let mut listens = PgListener::connect_with(&pool).await?;
        listens.listen(&channel(place)).await?;
        Ok(Self { listens, sends: options.connect().await? })
    }

    /// Forwards the message until the time is over. Returns how long it took to this place each time.
    pub(super) async fn go(
        &mut self,
        Trip { first, next, hold, from, until }: Trip<'_>,
    ) -> Result<Vec<Duration>, Failure> {
        let end = until + u64::try_from(STRAGGLERS.as_nanos())?;
        if first {
            clock::sleep_until(from).await;
            self.send(next).await?;
        }
        let mut took = Vec::new();
        loop {
            let note = tokio::select! {
                note = self.listens.recv() => note?,
                () = clock::sleep_until(end) => return Ok(took),
            };
            let arrived = clock::now();
            took.push(clock::between(note.payload().parse()?, arrived));
            if arrived < until {
                pause(hold).await;
                self.send(next).await?;
            }
        }
    }

    async fn send(&mut self, next: &str) -> Result<(), Failure> {
        let note = sqlx::query("SELECT pg_notify($1, $2)").bind(channel(next));
        note.bind(clock::now().to_string()).execute(&mut self.sends).await?;
        Ok(())
    }
}

fn channel(place: &str) -> String {
    format!("ring_{place}")
}
