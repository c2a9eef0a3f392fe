//! One PostgreSQL server.

use std::{
    fs::{read_dir, read_to_string},
    path::{Path, PathBuf},
};

use futures_util::{FutureExt as _, future::BoxFuture};
use rustix::process::Signal;
use sqlx::{Postgres, postgres::PgConnectOptions};
use tokio::process::Command;

use crate::{
    Server, SteppedClock, Stop, Verdict,
    directory::{CA, DATA, Directory, SERVER, Template},
    machine::{Account, find},
    process::{Children, Launch},
    server::{DataDirectory, Kind, Ports},
    sql::{ask, script},
};

/// One PostgreSQL server.
///
/// It has a database `dlock` that belongs to the user `dlock`, who has no other rights.
pub type PostgresServer = Server<Options>;

static KIND: Kind<Options> =
    Kind { name: "postgres", prepare, launch, is_ready, stop: Signal::INT };

/// The file in which a server reports its state.
const STATE: &str = "data/postmaster.pid";

/// The owner of the database, without the rights of an administrator.
pub(super) const USER: &str = "dlock";
pub(super) const DATABASE: &str = "dlock";
pub(super) const ADMIN: &str = "postgres";
pub(super) const PASSWORD: &str = "secret";

static TEMPLATE: Template = Template::new();

/// Creates a cluster with the users and the database. In single-user mode each statement is a line.
/// `TZ` is set because the search for the machine's time zone would take longer than all other
/// steps. Passwords are stored as MD5: with SCRAM, each connection computes 4096 hashes.
const INIT: &str = r#"
export TZ=UTC
"$1/initdb" -D "$2" -U "$3" -A md5 --pwfile=password -E UTF8 --locale=C --no-sync &&
"$1/postgres" --single -D "$2" -c fsync=off postgres <setup.sql
"#;

/// A killed server leaves its state file and the shared memory segment that the file names. With
/// the file, a later process with the same id would be mistaken for the server.
const REMAINS: &str = r#"
if [ -f data/postmaster.pid ]; then
  ipcrm -m "$(sed -n '7s/.* //p' data/postmaster.pid)"
  rm -f data/postmaster.pid
fi
"#;

/// The options of a PostgreSQL server.
#[derive(Clone, Debug)]
pub struct Options {
    lines: Vec<String>,
    max_connections: u32,
    tls: bool,
    fsync: bool,
    /// The URL of the primary that the server follows.
    primary: Option<String>,
    clock: Option<SteppedClock>,
}

impl Options {
    /// Returns the options of a server that does not sync, without TLS, for at most 100
    /// connections.
    pub fn new() -> Self {
        Self {
            lines: Vec::new(),
            max_connections: 100,
            tls: false,
            fsync: false,
            primary: None,
            clock: None,
        }
    }

    /// Adds a line of `postgresql.conf`, such as `default_transaction_isolation = 'serializable'`.
    /// If two lines set the same parameter, the later one applies.
    #[must_use]
    pub fn with_config(mut self, line: &str) -> Self {
        self.lines.push(line.to_owned());
        self
    }

    /// Sets the maximum number of connections. Three of them are reserved for the administrator.
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

    /// Sets whether a commit waits until its data is on the disk. This is for benchmarks: only a
    /// power failure loses data that was not synced. A killed server loses nothing either way.
    #[must_use]
    pub fn with_fsync(mut self, fsync: bool) -> Self {
        self.fsync = fsync;
        self
    }

    /// Makes the server a hot standby of this primary, which it copies at its start: it answers
    /// queries and refuses all other statements. It requires a limit of connections that is at
    /// least the primary's.
    #[must_use]
    pub fn standby_of(mut self, primary: &PostgresServer) -> Self {
        self.primary = Some(primary.admin_url());
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
        match &options.primary {
            Some(primary) => copy(&directory, primary).await?,
            None => fresh(&directory).await?,
        }
        if options.tls {
            directory.certify()?;
        }
        Ok(directory)
    }
    .boxed()
}

/// Creates a directory for the account that servers run as.
pub(super) fn directory() -> Result<Directory, Stop> {
    Directory::new("dlock-postgres-", Account::instead_of_root(&["postgres"])?, REMAINS)
}

/// Copies the initial data into the directory of a server.
async fn fresh(directory: &Directory) -> Verdict {
    TEMPLATE.copy(directory, make).await
}

/// Copies the primary's data into the directory of a standby.
async fn copy(directory: &Directory, primary: &str) -> Verdict {
    let program = Programs::find()?.path("pg_basebackup")?.display().to_string();
    let backup = r#""$1" -D "$2" -d "$3" --write-recovery-conf --checkpoint=fast --no-sync"#;
    directory.run(backup, &[&program, DATA, primary]).await
}

async fn make() -> Result<Directory, Stop> {
    let directory = directory()?;
    directory.write("password", PASSWORD)?;
    let setup = [
        "set password_encryption = 'md5'".to_owned(),
        format!("create role {USER} login password '{PASSWORD}'"),
        format!("create database {DATABASE} owner {USER}"),
    ];
    directory.write("setup.sql", &(setup.join("\n") + "\n"))?;
    directory.run(INIT, &[&Programs::find()?.bin.display().to_string(), DATA, ADMIN]).await?;
    Ok(directory)
}

fn launch(directory: &Directory, options: &Options, ports: Ports) -> Result<Launch, Stop> {
    directory.write("data/postgresql.conf", &(config(options, ports).join("\n") + "\n"))?;
    let launch = directory.launch(&Programs::find()?.path("postgres")?, &["-D", DATA]);
    Ok(launch.with_children(Children::Apart).with_clock(options.clock.as_ref()))
}

/// Returns the lines of the configuration. Paths are relative to the data directory.
fn config(options: &Options, ports: Ports) -> Vec<String> {
    let switch = |on| if on { "on" } else { "off" };
    let mut lines = vec![
        "listen_addresses = '127.0.0.1'".to_owned(),
        format!("port = {}", ports.clients),
        // The path of a socket may be longer than the system allows.
        "unix_socket_directories = ''".to_owned(),
        format!("max_connections = {}", options.max_connections),
        "shared_buffers = 16MB".to_owned(),
        // With the other types, a killed server leaves memory outside of the directory.
        "dynamic_shared_memory_type = mmap".to_owned(),
        format!("fsync = {}", switch(options.fsync)),
        "lc_messages = 'C'".to_owned(),
    ];
    if options.tls {
        let (certificate, key) = SERVER;
        lines.push(format!("ssl = on\nssl_ca_file = '../{}'", CA));
        lines.push(format!("ssl_cert_file = '../{certificate}'\nssl_key_file = '../{key}'"));
    }
    lines.extend(options.lines.iter().cloned());
    lines
}

/// The first line of the file is the process id, the eighth is the server's status.
fn is_ready(server: &PostgresServer) -> BoxFuture<'_, Verdict> {
    async {
        let state = read_to_string(server.directory().join(STATE)).unwrap_or_default();
        let lines: Vec<&str> = state.lines().map(str::trim).collect();
        let pid = server.pid().map(|pid| pid.to_string());
        match lines.first().copied() == pid.as_deref() && lines.get(7) == Some(&"ready") {
            true => Ok(()),
            false => Err(Stop::failed(format!("not ready\n{}", server.daemon.log()))),
        }
    }
    .boxed()
}

impl PostgresServer {
    /// Starts a server and waits until it accepts connections.
    ///
    /// # Errors
    /// [`Stop::missing`] if PostgreSQL is not installed.
    pub async fn start(options: &Options) -> Result<Self, Stop> {
        Self::start_as(&KIND, options).await
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
            return ask::<Postgres, _>(url.parse::<PgConnectOptions>()?, sql, "").await;
        }
        let mut psql = Command::new(Programs::find()?.path("psql")?);
        psql.args(["--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "--no-password"]);
        psql.args(["--field-separator=\x1f", "--record-separator-zero"]);
        psql.args(["--set=ON_ERROR_STOP=1", "--dbname", url, "--file=-"]);
        let answer = script(psql, sql).await?;
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

    async fn value(&self, query: &str) -> Result<String, Stop> {
        let value = self.query(query).await?.into_iter().flatten().next();
        value.ok_or_else(|| Stop::failed("no answer"))
    }
}

const BIN: &str = "DLOCK_TEST_POSTGRES_BIN";

/// Debian's parent directory of a directory for each major version.
const DEBIAN: &str = "/usr/lib/postgresql";

/// The programs that set up and run servers, and `psql`, all of one version.
#[derive(Clone, Debug)]
struct Programs {
    bin: PathBuf,
}

impl Programs {
    fn find() -> Result<Self, Stop> {
        let (bin, reason) = match std::env::var(BIN) {
            Ok(bin) => {
                let reason = format!("{BIN} is {bin}, where no PostgreSQL server is");
                (Some(PathBuf::from(bin)), reason)
            }
            Err(_) => {
                let reason = "PostgreSQL is not installed: apt-get install postgresql".to_owned();
                let on_path = || Some(find("initdb")?.canonicalize().ok()?.parent()?.to_owned());
                (newest(Path::new(DEBIAN)).or_else(on_path), reason)
            }
        };
        let bin = bin.filter(|bin| bin.join("initdb").is_file() && bin.join("postgres").is_file());
        Ok(Self { bin: bin.ok_or_else(|| Stop::missing(reason))? })
    }

    /// Returns the path of a program. The programs of clients may be in another directory.
    fn path(&self, name: &str) -> Result<PathBuf, Stop> {
        let beside = self.bin.join(name);
        match beside.is_file() {
            true => Ok(beside),
            false => find(name).ok_or_else(|| Stop::missing(format!("{name} is not installed"))),
        }
    }
}

/// Returns the directory of the newest version that has a server.
fn newest(versions: &Path) -> Option<PathBuf> {
    let version = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let paths = read_dir(versions).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let servers = paths.filter(|path| path.join("bin/initdb").is_file());
    servers.max_by_key(version).map(|path| path.join("bin"))
}
