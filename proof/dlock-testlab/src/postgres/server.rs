//! One PostgreSQL server.

use std::path::{Path, PathBuf};

use sqlx::{Postgres, postgres::PgConnectOptions};
use tokio::process::Command;

use super::{
    Options,
    data::{ADMIN, DATABASE, PASSWORD, USER, copy, fresh, home},
    launch::{FAST, KIND, launch},
    programs::Programs,
};
use crate::{
    Proxy, Snapshot, Stop, Verdict, client::ask, instance::Instance, sql, tls, wait::until,
};

/// One PostgreSQL server. It ends when this value is dropped.
///
/// It has a database `dlock` that belongs to the user `dlock`, who has no other rights.
#[derive(Debug)]
pub struct PostgresServer {
    instance: Instance,
    programs: Programs,
    options: Options,
}

impl PostgresServer {
    /// Starts a server and waits until it accepts connections.
    ///
    /// # Errors
    /// [`Stop::missing`] if PostgreSQL is not installed.
    pub async fn start(options: &Options) -> Result<Self, Stop> {
        let programs = Programs::find()?;
        let home = home()?;
        match &options.primary {
            Some(primary) => copy(&home, &programs, primary).await?,
            None => fresh(&home, &programs).await?,
        }
        if options.tls {
            home.certify()?;
        }
        let with = |home: &_, port| launch(home, &programs, options, port);
        let instance = Instance::start(KIND, home, with).await?;
        Ok(Self { instance, programs, options: options.clone() })
    }

    /// Returns the port that the server listens on. A restart does not change it.
    pub fn port(&self) -> u16 {
        self.instance.port()
    }

    /// Returns the address that the server listens on: `127.0.0.1:port`.
    pub fn address(&self) -> String {
        self.instance.address()
    }

    /// Returns the URL for the owner of the database:
    /// `postgres://dlock:password@127.0.0.1:port/dlock`.
    pub fn url(&self) -> String {
        self.url_of(USER, PASSWORD, DATABASE)
    }

    /// Returns the URL for the administrator, who has all rights.
    pub fn admin_url(&self) -> String {
        self.url_of(ADMIN, PASSWORD, DATABASE)
    }

    /// Returns the URL for a user that [`Self::run_sql`] created, or for another database.
    pub fn url_of(&self, user: &str, password: &str, database: &str) -> String {
        format!("postgres://{user}:{password}@{}/{database}", self.address())
    }

    /// Returns the URL for the owner of the database over TLS, with verification of the
    /// certificate, if TLS was [configured](Options::with_tls).
    pub fn tls_url(&self) -> Option<String> {
        let ca = self.ca()?;
        Some(format!("{}?sslmode=verify-full&sslrootcert={}", self.url(), ca.display()))
    }

    /// Returns the certificate of the authority that signed the certificates of the server and of
    /// the client, in PEM.
    pub fn ca(&self) -> Option<PathBuf> {
        self.options.tls.then(|| tls::ca(self.directory()))
    }

    /// Returns a certificate for a client and its key, in PEM.
    pub fn client_certificate(&self) -> Option<(PathBuf, PathBuf)> {
        self.options.tls.then(|| tls::client(self.directory()))
    }

    /// Returns the directory of the server's data, configuration and log.
    pub fn directory(&self) -> &Path {
        self.instance.directory()
    }

    /// Returns the id of the server's first process; `None` while the server is killed.
    pub fn pid(&self) -> Option<u32> {
        self.instance.pid()
    }

    /// Pauses all processes of the server: connections stay open and get no answers. The processes
    /// are stopped when this returns.
    ///
    /// # Errors
    /// If the server was killed, or does not stop.
    pub fn pause(&self) -> Verdict {
        self.instance.pause()
    }

    /// Continues the processes of a paused server.
    ///
    /// # Errors
    /// If the server was killed.
    pub fn resume(&self) -> Verdict {
        self.instance.resume()
    }

    /// Kills all processes of the server without a chance to clean up. They have ended when this
    /// returns.
    pub fn kill(&self) {
        self.instance.kill();
    }

    /// Shuts the server down: it disconnects all clients and ends in an orderly way. Waits until it
    /// has ended.
    ///
    /// # Errors
    /// If the server was killed, or does not end.
    pub async fn stop(&self) -> Verdict {
        self.instance.stop(FAST).await
    }

    /// Kills the server if it runs, and restarts it on the same port and data. Waits until it
    /// accepts connections.
    ///
    /// # Errors
    /// If the server does not start, or another process keeps its port.
    pub async fn restart(&self) -> Verdict {
        self.instance.restart().await
    }

    /// Pauses the server and copies the data that it has at this moment, as a backup would. If the
    /// future is dropped before it completes, the server may stay [paused](Self::pause).
    ///
    /// # Errors
    /// If the data can't be copied.
    pub async fn snapshot(&self) -> Result<Snapshot, Stop> {
        self.instance.snapshot().await
    }

    /// Kills the server if it runs, and restarts it on the same port with the data of the snapshot,
    /// as from an old backup.
    ///
    /// # Errors
    /// As for [`Self::restart`], and if the snapshot is that of another server.
    pub async fn restart_from(&self, snapshot: &Snapshot) -> Verdict {
        self.instance.put_back(snapshot).await?;
        self.restart().await
    }

    /// Kills the server if it runs, and restarts it on the same port as a new server: all its data
    /// is lost, and it follows no primary.
    ///
    /// # Errors
    /// As for [`Self::restart`].
    pub async fn restart_empty(&self) -> Verdict {
        let home = self.instance.clear().await?;
        fresh(home, &self.programs).await?;
        // The configuration is in the data directory, so it is written again.
        launch(home, &self.programs, &self.options, self.port())?;
        self.restart().await
    }

    /// Runs SQL as the administrator in the database `dlock`, each statement separately, up
    /// to the first one that fails. A script of several statements goes through `psql`, which
    /// splits it.
    ///
    /// # Errors
    /// The server's error.
    pub async fn run_sql(&self, sql: &str) -> Verdict {
        self.query(sql).await.map(|_| ())
    }

    /// Runs SQL and returns its rows as text, with an empty text in place of null.
    ///
    /// # Errors
    /// The server's error.
    pub async fn query(&self, sql: &str) -> Result<Vec<Vec<String>>, Stop> {
        self.query_at(&self.admin_url(), sql).await
    }

    /// Runs SQL as the user and at the address of a URL, which may be that of a
    /// [`Proxy`](crate::Proxy) or a [`PgBouncer`](super::PgBouncer). Returns the rows.
    ///
    /// # Errors
    /// The server's error.
    pub async fn query_at(&self, url: &str, sql: &str) -> Result<Vec<Vec<String>>, Stop> {
        if !sql.trim_end().trim_end_matches(';').contains(';') {
            return sql::ask::<Postgres, _>(url.parse::<PgConnectOptions>()?, sql, "").await;
        }
        let mut psql = Command::new(self.programs.path("psql")?);
        psql.args(["--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "--no-password"]);
        psql.args(["--field-separator=\x1f", "--record-separator-zero"]);
        psql.args(["--set=ON_ERROR_STOP=1", "--dbname", url, "--file=-"]);
        let answer = ask(psql, sql).await?;
        let rows = answer.split_terminator('\0');
        Ok(rows.map(|row| row.split('\x1f').map(str::to_owned).collect()).collect())
    }

    /// Terminates the connections of all clients, also during a statement. Returns their number.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn terminate_backends(&self) -> Result<usize, Stop> {
        let terminated = "select pg_terminate_backend(pid) from pg_stat_activity \
                          where backend_type = 'client backend' and pid <> pg_backend_pid()";
        Ok(self.query(terminated).await?.len())
    }

    /// Returns the state and the last statement of each transaction that a client began and did not
    /// end.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn open_transactions(&self) -> Result<Vec<String>, Stop> {
        let open = "select state, query from pg_stat_activity \
                    where state like 'idle in transaction%'";
        Ok(self.query(open).await?.iter().map(|row| row.join(": ")).collect())
    }

    /// Returns the number of connected clients, without this connection.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn connections(&self) -> Result<usize, Stop> {
        let others = "select count(*) from pg_stat_activity \
                      where backend_type = 'client backend' and pid <> pg_backend_pid()";
        Ok(self.value(others).await?.parse()?)
    }

    /// Returns the position in the log, in bytes since its beginning: what the server wrote or, for
    /// a standby, what it has received. The difference of the two is the standby's lag.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn log_position(&self) -> Result<u64, Stop> {
        let position = "select case when pg_is_in_recovery() then coalesce(greatest( \
                        pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()), '0/0') \
                        else pg_current_wal_lsn() end - pg_lsn '0/0'";
        Ok(self.value(position).await?.parse()?)
    }

    /// Makes a standby an independent server with the data that it has received, and waits until it
    /// accepts writes.
    ///
    /// # Errors
    /// If the server is no standby, or is not promoted in time.
    pub async fn promote(&self) -> Verdict {
        self.run_sql("select pg_promote(false)").await?;
        until("the standby is promoted", || async {
            match self.value("select pg_is_in_recovery()").await?.as_str() {
                "f" => Ok(()),
                _ => Err(Stop::failed("it still follows")),
            }
        })
        .await
    }

    async fn value(&self, query: &str) -> Result<String, Stop> {
        let value = self.query(query).await?.into_iter().flatten().next();
        value.ok_or_else(|| Stop::failed("no answer"))
    }
}

impl Options {
    /// Makes the server a hot standby of this primary, which it copies at its start: it answers
    /// queries and refuses all other statements. It requires a limit of connections that is at
    /// least the primary's.
    #[must_use]
    pub fn standby_of(mut self, primary: &PostgresServer) -> Self {
        self.primary = Some(primary.admin_url());
        self
    }

    /// Makes the server a hot standby of this primary, to which it connects through the proxy.
    #[must_use]
    pub fn standby_through(mut self, proxy: &Proxy, primary: &PostgresServer) -> Self {
        let url = primary.admin_url().replace(&primary.address(), &proxy.address());
        self.primary = Some(url);
        self
    }
}
