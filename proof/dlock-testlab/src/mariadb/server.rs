//! One MariaDB server.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use sqlx::{MySql, mysql::MySqlConnectOptions};
use tokio::time::sleep;

use super::{
    Options,
    data::{ADMIN, DATABASE, PASSWORD, USER, fresh, home},
    launch::{KIND, ORDERLY, launch},
    programs::Programs,
};
use crate::{Snapshot, Stop, Verdict, instance::Instance, sql, tls};

/// Counts the connections other than this one and the server's own.
const OTHERS: &str = "
select count(*) from information_schema.processlist
where id <> connection_id() and user not in ('system user', 'event_scheduler')
";

/// InnoDB refreshes its list of transactions only if the list was not read for 0.1 s. A list that
/// is read more often never changes.
const STALE: Duration = Duration::from_millis(120);

/// The open transactions of idle sessions.
const OPEN: &str = "SELECT t.trx_state, p.command FROM information_schema.innodb_trx t \
                    JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id \
                    WHERE p.command = 'Sleep'";

/// Kills every connection except this one, and returns their number. Some may have ended before
/// that.
const TERMINATE: &str = "
begin not atomic
  declare killed int default 0;
  declare continue handler for 1094 begin end;
  for one in (
    select id from information_schema.processlist
    where id <> connection_id() and user not in ('system user', 'event_scheduler')
  ) do
    kill one.id;
    set killed = killed + 1;
  end for;
  select killed;
end
";

/// One MariaDB server. It ends when this value is dropped.
///
/// It has a database `dlock` that belongs to the user `dlock`, who has no other rights.
#[derive(Debug)]
pub struct MariadbServer {
    instance: Instance,
    programs: Programs,
    tls: bool,
}

impl MariadbServer {
    /// Starts a server and waits until it accepts connections.
    ///
    /// # Errors
    /// [`Stop::missing`] if MariaDB is not installed.
    pub async fn start(options: &Options) -> Result<Self, Stop> {
        let programs = Programs::find()?;
        let home = home()?;
        fresh(&home, &programs).await?;
        if options.tls {
            home.certify()?;
        }
        let with = |home: &_, port| launch(home, &programs, options, port);
        let instance = Instance::start(KIND, home, with).await?;
        Ok(Self { instance, programs, tls: options.tls })
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
    /// `mysql://dlock:password@127.0.0.1:port/dlock`.
    pub fn url(&self) -> String {
        self.url_of(USER, PASSWORD, DATABASE)
    }

    /// Returns the URL for the administrator, who has all rights.
    pub fn admin_url(&self) -> String {
        self.url_of(ADMIN, PASSWORD, DATABASE)
    }

    /// Returns the URL for a user that [`Self::run_sql`] created, or for another database.
    pub fn url_of(&self, user: &str, password: &str, database: &str) -> String {
        format!("mysql://{user}:{password}@{}/{database}", self.address())
    }

    /// Returns the URL for the owner of the database over TLS, with verification of the
    /// certificate, if TLS was [configured](Options::with_tls).
    pub fn tls_url(&self) -> Option<String> {
        let ca = self.ca()?;
        Some(format!("{}?ssl-mode=VERIFY_IDENTITY&ssl-ca={}", self.url(), ca.display()))
    }

    /// Returns the certificate of the authority that signed the certificates of the server and of
    /// the client, in PEM.
    pub fn ca(&self) -> Option<PathBuf> {
        self.tls.then(|| tls::ca(self.directory()))
    }

    /// Returns a certificate for a client and its key, in PEM.
    pub fn client_certificate(&self) -> Option<(PathBuf, PathBuf)> {
        self.tls.then(|| tls::client(self.directory()))
    }

    /// Returns the directory of the server's data, configuration and log.
    pub fn directory(&self) -> &Path {
        self.instance.directory()
    }

    /// Returns the process id; `None` while the server is killed.
    pub fn pid(&self) -> Option<u32> {
        self.instance.pid()
    }

    /// Pauses the server: connections stay open and get no answers. The process is stopped when
    /// this returns.
    ///
    /// # Errors
    /// If the server was killed, or does not stop.
    pub fn pause(&self) -> Verdict {
        self.instance.pause()
    }

    /// Continues a paused server.
    ///
    /// # Errors
    /// If the server was killed.
    pub fn resume(&self) -> Verdict {
        self.instance.resume()
    }

    /// Kills the server without a chance to clean up. It has ended when this returns.
    pub fn kill(&self) {
        self.instance.kill();
    }

    /// Shuts the server down: it disconnects all clients and ends in an orderly way. Waits until it
    /// has ended.
    ///
    /// # Errors
    /// If the server was killed, or does not end.
    pub async fn stop(&self) -> Verdict {
        self.instance.stop(ORDERLY).await
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
    /// is lost.
    ///
    /// # Errors
    /// As for [`Self::restart`].
    pub async fn restart_empty(&self) -> Verdict {
        fresh(self.instance.clear().await?, &self.programs).await?;
        self.restart().await
    }

    /// Runs SQL as the administrator in the database `dlock`, each statement separately, up
    /// to the first one that fails.
    ///
    /// # Errors
    /// The server's error.
    pub async fn run_sql(&self, sql: &str) -> Verdict {
        self.query(sql).await.map(|_| ())
    }

    /// Runs SQL and returns its rows as text, with `NULL` in place of null.
    ///
    /// # Errors
    /// The server's error.
    pub async fn query(&self, sql: &str) -> Result<Vec<Vec<String>>, Stop> {
        self.query_at(&self.admin_url(), sql).await
    }

    /// Runs SQL as the user and at the address of a URL, which may be that of a
    /// [`Proxy`](crate::Proxy). Returns the rows.
    ///
    /// # Errors
    /// The server's error.
    pub async fn query_at(&self, url: &str, sql: &str) -> Result<Vec<Vec<String>>, Stop> {
        sql::ask::<MySql, _>(url.parse::<MySqlConnectOptions>()?, sql, "NULL").await
    }

    /// Kills the connections of all clients, also during a statement. Returns their number.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn terminate_backends(&self) -> Result<usize, Stop> {
        self.count(TERMINATE).await
    }

    /// Returns the states of the transactions that clients began and did not end.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn open_transactions(&self) -> Result<Vec<String>, Stop> {
        sleep(STALE).await;
        Ok(self.query(OPEN).await?.iter().map(|row| row.join(": ")).collect())
    }

    /// Returns the number of connected clients, without this connection.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn connections(&self) -> Result<usize, Stop> {
        self.count(OTHERS).await
    }

    async fn count(&self, sql: &str) -> Result<usize, Stop> {
        let count = self.query(sql).await?.concat();
        Ok(count.first().ok_or_else(|| Stop::failed("no answer"))?.parse()?)
    }
}
