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

/// One PostgreSQL server, which dies with this value.
///
/// It has a database `dlock` that belongs to the user `dlock`, who may do nothing else.
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

    /// The port it listens on, which a restart does not change.
    pub fn port(&self) -> u16 {
        self.instance.port()
    }

    /// Where it listens: `127.0.0.1:port`.
    pub fn address(&self) -> String {
        self.instance.address()
    }

    /// Where the owner of the database finds it: `postgres://dlock:password@127.0.0.1:port/dlock`.
    pub fn url(&self) -> String {
        self.url_of(USER, PASSWORD, DATABASE)
    }

    /// The same for the administrator, who may do everything.
    pub fn admin_url(&self) -> String {
        self.url_of(ADMIN, PASSWORD, DATABASE)
    }

    /// The same for a user that was made by [`Self::run_sql`], or for another database.
    pub fn url_of(&self, user: &str, password: &str, database: &str) -> String {
        format!("postgres://{user}:{password}@{}/{database}", self.address())
    }

    /// Where the owner of the database finds it over TLS, if that was
    /// [asked for](Options::with_tls), with its certificate checked.
    pub fn tls_url(&self) -> Option<String> {
        let ca = self.ca()?;
        Some(format!("{}?sslmode=verify-full&sslrootcert={}", self.url(), ca.display()))
    }

    /// The certificate of the authority that signed the server's and the client's, in PEM.
    pub fn ca(&self) -> Option<PathBuf> {
        self.options.tls.then(|| tls::ca(self.directory()))
    }

    /// A certificate for a client and its key, in PEM.
    pub fn client_certificate(&self) -> Option<(PathBuf, PathBuf)> {
        self.options.tls.then(|| tls::client(self.directory()))
    }

    /// Where its data, configuration and log are.
    pub fn directory(&self) -> &Path {
        self.instance.directory()
    }

    /// The id of its first process; `None` while it is killed.
    pub fn pid(&self) -> Option<u32> {
        self.instance.pid()
    }

    /// Stops all its processes where they stand: connections stay, nothing is answered. They are
    /// stopped when this returns.
    ///
    /// # Errors
    /// When it was killed, or is not stopped in the end.
    pub fn pause(&self) -> Verdict {
        self.instance.pause()
    }

    /// Lets them go on.
    ///
    /// # Errors
    /// If the server was killed.
    pub fn resume(&self) -> Verdict {
        self.instance.resume()
    }

    /// Kills all its processes without a chance to clean up. They have ended when this returns.
    pub fn kill(&self) {
        self.instance.kill();
    }

    /// Has it disconnect everybody and end in an orderly way, and waits for that.
    ///
    /// # Errors
    /// When it was killed, or does not end.
    pub async fn stop(&self) -> Verdict {
        self.instance.stop(FAST).await
    }

    /// Kills it if it runs, and starts it again on the same port and data. Waits until it accepts
    /// connections.
    ///
    /// # Errors
    /// When it does not start, or somebody else keeps its port.
    pub async fn restart(&self) -> Verdict {
        self.instance.restart().await
    }

    /// Copies what it keeps at this moment, in which it stands still, as into a backup. Dropped
    /// before it is done, this may leave the server [paused](Self::pause).
    ///
    /// # Errors
    /// When it can't be copied.
    pub async fn snapshot(&self) -> Result<Snapshot, Stop> {
        self.instance.snapshot().await
    }

    /// Kills it if it runs, and starts it again on the same port with what it had at the time of the
    /// snapshot, as from an old backup.
    ///
    /// # Errors
    /// As for [`Self::restart`], and when the snapshot is that of another server.
    pub async fn restart_from(&self, snapshot: &Snapshot) -> Verdict {
        self.instance.put_back(snapshot).await?;
        self.restart().await
    }

    /// Kills it if it runs, and starts it again on the same port as if it were new: all that it had
    /// is lost, and it follows nobody.
    ///
    /// # Errors
    /// As for [`Self::restart`].
    pub async fn restart_empty(&self) -> Verdict {
        let home = self.instance.clear().await?;
        fresh(home, &self.programs).await?;
        // The data directory has the configuration.
        launch(home, &self.programs, &self.options, self.port())?;
        self.restart().await
    }

    /// Does some SQL as the administrator in the database `dlock`, each statement on its own, up to
    /// the first that fails. A script of several goes through `psql`, which tells them apart.
    ///
    /// # Errors
    /// What the server says against it.
    pub async fn run_sql(&self, sql: &str) -> Verdict {
        self.query(sql).await.map(|_| ())
    }

    /// The same with its answer: the rows as text, where nothing stands for null.
    ///
    /// # Errors
    /// What the server says against it.
    pub async fn query(&self, sql: &str) -> Result<Vec<Vec<String>>, Stop> {
        self.query_at(&self.admin_url(), sql).await
    }

    /// The same as the user and by the way that a URL names, which may lead through a
    /// [`Proxy`](crate::Proxy) or a [`PgBouncer`](super::PgBouncer).
    ///
    /// # Errors
    /// What the server says against it.
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

    /// Ends the connections of all clients, also in the middle of a statement. How many there were.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn terminate_backends(&self) -> Result<usize, Stop> {
        let terminated = "select pg_terminate_backend(pid) from pg_stat_activity \
                          where backend_type = 'client backend' and pid <> pg_backend_pid()";
        Ok(self.query(terminated).await?.len())
    }

    /// The transactions that somebody began and did not end: what they do.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn open_transactions(&self) -> Result<Vec<String>, Stop> {
        let open = "select state, query from pg_stat_activity \
                    where state like 'idle in transaction%'";
        Ok(self.query(open).await?.iter().map(|row| row.join(": ")).collect())
    }

    /// How many clients are connected, without whoever asks.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn connections(&self) -> Result<usize, Stop> {
        let others = "select count(*) from pg_stat_activity \
                      where backend_type = 'client backend' and pid <> pg_backend_pid()";
        Ok(self.value(others).await?.parse()?)
    }

    /// How much of the log it has, in bytes since the beginning: what it wrote, or as a standby what
    /// it knows of. A standby lags behind by the difference.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn log_position(&self) -> Result<u64, Stop> {
        let position = "select case when pg_is_in_recovery() then coalesce(greatest( \
                        pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()), '0/0') \
                        else pg_current_wal_lsn() end - pg_lsn '0/0'";
        Ok(self.value(position).await?.parse()?)
    }

    /// Makes a standby a server of its own, with what it knows of, and waits until it writes.
    ///
    /// # Errors
    /// When it is no standby, or does not come about.
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
    /// Makes it a hot standby of this server, which it copies at its start: it answers queries and
    /// refuses everything else. It wants to be allowed at least as many connections.
    #[must_use]
    pub fn standby_of(mut self, primary: &PostgresServer) -> Self {
        self.primary = Some(primary.admin_url());
        self
    }

    /// The same, with the proxy between the two, which leads to the primary.
    #[must_use]
    pub fn standby_through(mut self, proxy: &Proxy, primary: &PostgresServer) -> Self {
        let url = primary.admin_url().replace(&primary.address(), &proxy.address());
        self.primary = Some(url);
        self
    }
}
