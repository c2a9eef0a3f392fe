//! Private MariaDB servers.
//!
//! They need `mariadbd` and `mariadb-install-db`: on the path, or in the directory that
//! `DLOCK_TEST_MARIADB_BIN` names. The server refuses to run as root; then it runs as `mysql` or
//! `nobody`, which must have access to the directory for temporary files.
//!
//! The data of a server survives a [kill](MariadbServer::kill), although it is not
//! [synced](Options::with_fsync): the operating system has it.
//!
//! ```no_run
//! # async fn example() -> Result<(), dlock_testlab::Stop> {
//! use dlock_testlab::mariadb::{MariadbServer, Options};
//!
//! let server = MariadbServer::start(&Options::new()).await?;
//! server.run_sql("create table a (b int); insert into a values (1)").await?;
//! assert_eq!(server.query("select b, 'c' from a").await?, [["1", "c"]]);
//! # Ok(())
//! # }
//! ```

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use futures_util::{FutureExt as _, future::BoxFuture};
use rustix::process::Signal;
use sqlx::{MySql, mysql::MySqlConnectOptions};
use tokio::time::sleep;

use crate::{
    Server, SteppedClock, Stop, Verdict,
    directory::{CA, DATA, Directory, SERVER, Template},
    machine::{Account, find},
    process::Launch,
    server::{DataDirectory, Kind, Ports},
    sql::ask,
};

/// One MariaDB server.
///
/// It has a database `dlock` that belongs to the user `dlock`, who has no other rights.
pub type MariadbServer = Server<Options>;

static KIND: Kind<Options> =
    Kind { name: "mariadbd", prepare, launch, is_ready, stop: Signal::TERM };

const CONFIG: &str = "my.cnf";

/// The owner of the database, without the rights of an administrator.
const USER: &str = "dlock";
const DATABASE: &str = "dlock";
const ADMIN: &str = "root";
const PASSWORD: &str = "secret";

/// A small log makes copies fast.
const QUICK: [&str; 2] = ["innodb_flush_method=nosync", "innodb_log_file_size=16M"];

static TEMPLATE: Template = Template::new();

/// Creates the system tables, and then the users and the database. Temporary tables go to a
/// separate directory: a starting server deletes all temporary tables in a shared one.
const INIT: &str = r#"
mkdir tmp &&
"$1" --no-defaults --datadir="$PWD/$3" --tmpdir="$PWD/tmp" --skip-test-db \
  --auth-root-authentication-method=normal --skip-name-resolve --"$4" --"$5" &&
"$2" --no-defaults --datadir="$PWD/$3" --tmpdir="$PWD/tmp" --bootstrap --"$4" --"$5" <setup.sql
"#;

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

/// The options of a MariaDB server.
#[derive(Clone, Debug)]
pub struct Options {
    lines: Vec<String>,
    max_connections: u32,
    tls: bool,
    fsync: bool,
    clock: Option<SteppedClock>,
}

impl Options {
    /// Returns the options of a server that does not sync, without TLS, for at most 100
    /// connections.
    pub fn new() -> Self {
        Self { lines: Vec::new(), max_connections: 100, tls: false, fsync: false, clock: None }
    }

    /// Adds a line of `my.cnf`, such as `sql_mode = ANSI`. With `read_only = 1` the server refuses
    /// writes from all users except the administrator, as a replica does. If two lines set the same
    /// variable, the later one applies.
    #[must_use]
    pub fn with_config(mut self, line: &str) -> Self {
        self.lines.push(line.to_owned());
        self
    }

    /// Sets the maximum number of connections. One more is reserved for the administrator.
    #[must_use]
    pub fn with_max_connections(mut self, connections: u32) -> Self {
        self.max_connections = connections;
        self
    }

    /// Enables TLS for clients that request it, on the same port and with a certificate that is
    /// created for the server.
    #[must_use]
    pub fn with_tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Sets whether a commit waits until its data is on the disk, which is MariaDB's default, and
    /// gives the log its default size. This is for benchmarks: only a power failure loses data that
    /// was not synced. A killed server loses nothing either way.
    #[must_use]
    pub fn with_fsync(mut self, fsync: bool) -> Self {
        self.fsync = fsync;
        self
    }

    /// Makes the server use this wall clock, also after a restart.
    #[must_use]
    pub fn with_clock(mut self, clock: &SteppedClock) -> Self {
        self.clock = Some(clock.clone());
        self
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl DataDirectory for Options {}

fn prepare(options: &Options) -> BoxFuture<'_, Result<Directory, Stop>> {
    async {
        Programs::find()?;
        let directory = directory()?;
        fresh(&directory).await?;
        if options.tls {
            directory.certify()?;
        }
        Ok(directory)
    }
    .boxed()
}

/// Creates a directory for the account that servers run as.
fn directory() -> Result<Directory, Stop> {
    Directory::new("dlock-mariadb-", Account::instead_of_root(&["mysql"])?, "")
}

/// Copies the initial data into the directory of a server.
async fn fresh(directory: &Directory) -> Verdict {
    TEMPLATE.copy(directory, make).await
}

async fn make() -> Result<Directory, Stop> {
    let (directory, programs) = (directory()?, Programs::find()?);
    let setup = [
        "flush privileges;".to_owned(),
        format!("create or replace user {ADMIN}@127.0.0.1 identified by '{PASSWORD}';"),
        format!("grant all on *.* to {ADMIN}@127.0.0.1 with grant option;"),
        format!("create database {DATABASE};"),
        format!("create user {USER}@'%' identified by '{PASSWORD}';"),
        format!("grant all on {DATABASE}.* to {USER}@'%';"),
    ];
    directory.write("setup.sql", &(setup.join("\n") + "\n"))?;
    let (install, server) = (programs.install.display(), programs.server.display());
    let [quick, small] = QUICK;
    directory.run(INIT, &[&install.to_string(), &server.to_string(), DATA, quick, small]).await?;
    Ok(directory)
}

fn launch(directory: &Directory, options: &Options, ports: Ports) -> Result<Launch, Stop> {
    directory.write(CONFIG, &(config(directory, options, ports).join("\n") + "\n"))?;
    // With this option the server reads no other configuration file.
    let file = format!("--defaults-file={}", directory.path().join(CONFIG).display());
    Ok(directory.launch(&Programs::find()?.server, &[&file]).with_clock(options.clock.as_ref()))
}

/// Returns the lines of the configuration.
fn config(directory: &Directory, options: &Options, ports: Ports) -> Vec<String> {
    let path = |name: &str| directory.path().join(name).display().to_string();
    let mut lines = vec![
        "[mariadbd]".to_owned(),
        format!("datadir = {}", path(DATA)),
        format!("tmpdir = {}", path(DATA)),
        "bind_address = 127.0.0.1".to_owned(),
        format!("port = {}", ports.clients),
        // Relative to the data directory: the full path may be longer than the system allows.
        "socket = socket\npid_file = pid".to_owned(),
        "skip_name_resolve".to_owned(),
        format!("max_connections = {}", options.max_connections),
        "performance_schema = off".to_owned(),
        "innodb_buffer_pool_size = 16M\naria_pagecache_buffer_size = 8M".to_owned(),
    ];
    if !options.fsync {
        // Each commit reaches the operating system, so it survives a kill of the server.
        lines.push("innodb_flush_log_at_trx_commit = 2".to_owned());
        lines.extend(QUICK.map(str::to_owned));
    }
    if options.tls {
        let (certificate, key) = SERVER;
        lines.push(format!("ssl_ca = {}", path(CA)));
        lines.push(format!("ssl_cert = {}\nssl_key = {}", path(certificate), path(key)));
    }
    lines.extend(options.lines.iter().cloned());
    lines
}

fn is_ready(server: &MariadbServer) -> BoxFuture<'_, Verdict> {
    async { server.printed("ready for connections") }.boxed()
}

impl MariadbServer {
    /// Starts a server and waits until it accepts connections.
    ///
    /// # Errors
    /// [`Stop::missing`] if MariaDB is not installed.
    pub async fn start(options: &Options) -> Result<Self, Stop> {
        Self::start_as(&KIND, options).await
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
        ask::<MySql, _>(url.parse::<MySqlConnectOptions>()?, sql, "NULL").await
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

const BIN: &str = "DLOCK_TEST_MARIADB_BIN";

/// The programs that set up and run servers.
#[derive(Clone, Debug)]
struct Programs {
    server: PathBuf,
    install: PathBuf,
}

impl Programs {
    fn find() -> Result<Self, Stop> {
        Ok(Self {
            server: program("mariadbd", "mariadb-server")?,
            install: program("mariadb-install-db", "mariadb-server")?,
        })
    }
}

fn program(name: &str, package: &str) -> Result<PathBuf, Stop> {
    match std::env::var(BIN) {
        Ok(bin) => {
            let path = Some(Path::new(&bin).join(name)).filter(|path| path.is_file());
            path.ok_or_else(|| Stop::missing(format!("{BIN} is {bin}, where no {name} is")))
        }
        Err(_) => find(name).ok_or_else(|| {
            Stop::missing(format!("{name} is not installed: apt-get install {package}"))
        }),
    }
}
