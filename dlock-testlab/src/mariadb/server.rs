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

/// Who is connected and is neither this connection nor one of the server's own.
const OTHERS: &str = "
select count(*) from information_schema.processlist
where id <> connection_id() and user not in ('system user', 'event_scheduler')
";

/// InnoDB lists its transactions anew when nobody has read the list for 0.1 s: one that is read again
/// sooner never changes.
const STALE: Duration = Duration::from_millis(120);

/// The transactions of sessions that do nothing.
const OPEN: &str = "SELECT t.trx_state, p.command FROM information_schema.innodb_trx t \
                    JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id \
                    WHERE p.command = 'Sleep'";

/// Kills every connection but this one, of which some may be gone by then. How many there were.
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

/// One MariaDB server, which dies with this value.
///
/// It has a database `dlock` that belongs to the user `dlock`, who may do nothing else.
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

    /// The port it listens on, which a restart does not change.
    pub fn port(&self) -> u16 {
        self.instance.port()
    }

    /// Where it listens: `127.0.0.1:port`.
    pub fn address(&self) -> String {
        self.instance.address()
    }

    /// Where the owner of the database finds it: `mysql://dlock:password@127.0.0.1:port/dlock`.
    pub fn url(&self) -> String {
        self.url_of(USER, PASSWORD, DATABASE)
    }

    /// The same for the administrator, who may do everything.
    pub fn admin_url(&self) -> String {
        self.url_of(ADMIN, PASSWORD, DATABASE)
    }

    /// The same for a user that was made by [`Self::run_sql`], or for another database.
    pub fn url_of(&self, user: &str, password: &str, database: &str) -> String {
        format!("mysql://{user}:{password}@{}/{database}", self.address())
    }

    /// Where the owner of the database finds it over TLS, if that was
    /// [asked for](Options::with_tls), with its certificate checked.
    pub fn tls_url(&self) -> Option<String> {
        let ca = self.ca()?;
        Some(format!("{}?ssl-mode=VERIFY_IDENTITY&ssl-ca={}", self.url(), ca.display()))
    }

    /// The certificate of the authority that signed the server's and the client's, in PEM.
    pub fn ca(&self) -> Option<PathBuf> {
        self.tls.then(|| tls::ca(self.directory()))
    }

    /// A certificate for a client and its key, in PEM.
    pub fn client_certificate(&self) -> Option<(PathBuf, PathBuf)> {
        self.tls.then(|| tls::client(self.directory()))
    }

    /// Where its data, configuration and log are.
    pub fn directory(&self) -> &Path {
        self.instance.directory()
    }

    /// Its process id; `None` while it is killed.
    pub fn pid(&self) -> Option<u32> {
        self.instance.pid()
    }

    /// Stops it where it stands: connections stay, nothing is answered. It is
    /// stopped when this returns.
    ///
    /// # Errors
    /// When it was killed, or is not stopped in the end.
    pub fn pause(&self) -> Verdict {
        self.instance.pause()
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// If the server was killed.
    pub fn resume(&self) -> Verdict {
        self.instance.resume()
    }

    /// Kills it without a chance to clean up. It has ended when this returns.
    pub fn kill(&self) {
        self.instance.kill();
    }

    /// Has it disconnect everybody and end in an orderly way, and waits for that.
    ///
    /// # Errors
    /// When it was killed, or does not end.
    pub async fn stop(&self) -> Verdict {
        self.instance.stop(ORDERLY).await
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
    /// is lost.
    ///
    /// # Errors
    /// As for [`Self::restart`].
    pub async fn restart_empty(&self) -> Verdict {
        fresh(self.instance.clear().await?, &self.programs).await?;
        self.restart().await
    }

    /// Does some SQL as the administrator in the database `dlock`, each statement on its own, up to
    /// the first that fails.
    ///
    /// # Errors
    /// What the server says against it.
    pub async fn run_sql(&self, sql: &str) -> Verdict {
        self.query(sql).await.map(|_| ())
    }

    /// The same with its answer: the rows as text, where `NULL` stands for null.
    ///
    /// # Errors
    /// What the server says against it.
    pub async fn query(&self, sql: &str) -> Result<Vec<Vec<String>>, Stop> {
        self.query_at(&self.admin_url(), sql).await
    }

    /// The same as the user and by the way that a URL names, which may lead through a
    /// [`Proxy`](crate::Proxy).
    ///
    /// # Errors
    /// What the server says against it.
    pub async fn query_at(&self, url: &str, sql: &str) -> Result<Vec<Vec<String>>, Stop> {
        sql::ask::<MySql, _>(url.parse::<MySqlConnectOptions>()?, sql, "NULL").await
    }

    /// Ends the connections of all clients, also in the middle of a statement. How many there were.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn terminate_backends(&self) -> Result<usize, Stop> {
        self.count(TERMINATE).await
    }

    /// The transactions that somebody began and did not end: their states.
    ///
    /// # Errors
    /// If no answer arrives.
    pub async fn open_transactions(&self) -> Result<Vec<String>, Stop> {
        sleep(STALE).await;
        Ok(self.query(OPEN).await?.iter().map(|row| row.join(": ")).collect())
    }

    /// How many clients are connected, without whoever asks.
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
