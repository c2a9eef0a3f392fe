//! The connection that receives the notifications of grants.

use dlock_core::{Error, ErrorKind};
use sqlx::{
    AssertSqlSafe, PgPool,
    postgres::{PgConnectOptions, PgListener, PgPoolOptions},
};
use tokio::{runtime::Handle, time::timeout};

use super::{PostgresConfig, conn::channel, error::classify};
use crate::engine::{Fault, Listener};

/// Receives the notifications to one engine.
pub(super) struct PostgresListener {
    config: PostgresConfig,
    channel: String,
    runtime: Handle,
    listener: Option<PgListener>,
}

impl PostgresListener {
    /// Creates a listener that is not connected yet.
    pub(super) fn new(config: PostgresConfig, home: u32, runtime: Handle) -> Self {
        Self { config, channel: channel(home), runtime, listener: None }
    }

    async fn listen(&self, options: PgConnectOptions) -> Result<PgListener, Fault> {
        // The driver's listener needs a pool. One connection is enough.
        let greeting = self.config.greeting(true);
        let pool: PgPool = PgPoolOptions::new()
            .max_connections(1)
            .max_lifetime(None)
            .idle_timeout(None)
            .acquire_timeout(self.config.response_timeout)
            .test_before_acquire(false)
            // The greeting makes the server keep the connection while it is idle.
            .after_connect(move |conn, _| {
                let greeting = AssertSqlSafe(greeting.clone());
                Box::pin(async move { sqlx::raw_sql(greeting).execute(conn).await.map(drop) })
            })
            .connect_lazy_with(options);
        let mut listener = PgListener::connect_with(&pool).await.map_err(classify)?;
        // Notifications are lost with a connection. An eager reconnect would hide that, and the
        // waiters would not poll.
        listener.eager_reconnect(false);
        listener.listen(&self.channel).await.map_err(classify)?;
        Ok(listener)
    }

    fn shut(&mut self) {
        // The driver starts a task that closes the connection.
        let _context = self.runtime.enter();
        self.listener = None;
    }
}

impl Listener for PostgresListener {
    fn is_open(&self) -> bool {
        self.listener.is_some()
    }

    async fn open(&mut self) -> Result<(), Error> {
        self.shut();
        let response_timeout = self.config.response_timeout;
        let listening = self.config.connect(response_timeout / 2, |options| self.listen(options));
        match timeout(response_timeout, listening).await {
            Ok(Ok(listener)) => {
                self.listener = Some(listener);
                Ok(())
            }
            Ok(Err(fault)) => Err(fault.error),
            Err(_) => Err(lost("the server did not accept LISTEN in time")),
        }
    }

    async fn next(&mut self) -> Result<String, Error> {
        let Some(listener) = &mut self.listener else { return Err(lost("no connection listens")) };
        match listener.try_recv().await {
            Ok(Some(notification)) => Ok(notification.payload().to_owned()),
            Ok(None) => Err(lost("the connection that listens was lost")),
            Err(error) => Err(classify(error).error),
        }
    }
}

impl Drop for PostgresListener {
    fn drop(&mut self) {
        self.shut();
    }
}

fn lost(what: &'static str) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{what}: waiters poll"))
}
