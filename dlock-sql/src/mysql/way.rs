//! The way to the server, which every new connection goes.

use std::time::Duration;

use dlock_core::Certainty;
use sqlx::{AssertSqlSafe, ConnectOptions as _, MySqlConnection, mysql::MySqlConnectOptions};
use tokio::time::timeout;

use super::{
    error::{classify, late},
    queries,
};
use crate::engine::Fault;

/// How to get to the server, and what to expect there.
#[derive(Clone)]
pub(super) struct Way {
    /// **They print the password.**
    options: MySqlConnectOptions,
    session: String,
    pub(super) timeout: Duration,
    pub(super) returning: bool,
}

impl Way {
    /// A try may take half of the `patience`, so that there is time for another.
    pub(super) fn new(options: MySqlConnectOptions, patience: Duration, returning: bool) -> Self {
        // The server gives up before the client does, as far as it can, and so leaves no doubt about
        // the statement.
        let timeout = patience / 2;
        let seconds = (timeout.as_secs() / 2).max(1).to_string();
        let limit = format!("{:.3}", (timeout.mul_f64(0.7)).as_secs_f64().max(0.005));
        let session = queries::SESSION.replace("{seconds}", &seconds).replace("{limit}", &limit);
        Self { options, session, timeout, returning }
    }

    /// Connects. Nothing has been applied when that fails.
    pub(super) async fn connect(&self) -> Result<MySqlConnection, Fault> {
        let connect = async {
            let mut conn = self.options.connect().await?;
            sqlx::raw_sql(AssertSqlSafe(self.session.clone())).execute(&mut conn).await?;
            Ok(conn)
        };
        let connected = timeout(self.timeout, connect).await;
        connected.map_or_else(|_| Err(late()), |connected| connected.map_err(classify)).map_err(
            |Fault { error, cure }| Fault {
                error: error.with_certainty(Certainty::NotApplied),
                cure,
            },
        )
    }
}
