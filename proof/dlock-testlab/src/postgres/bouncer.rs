//! A PgBouncer in front of a server.

use futures_util::{FutureExt as _, future::BoxFuture};
use rustix::process::Signal;

use super::{
    PostgresServer,
    server::{ADMIN, DATABASE, PASSWORD, USER, directory},
};
use crate::{
    Server, Stop, Verdict,
    directory::Directory,
    machine::find,
    process::Launch,
    server::{Kind, Ports},
};

/// A PgBouncer in transaction mode: each transaction of a client may get another connection to the
/// server.
///
/// It accepts the owner of the database and the administrator.
pub type PgBouncer = Server<Bouncer>;

static KIND: Kind<Bouncer> =
    Kind { name: "pgbouncer", prepare, launch, is_ready, stop: Signal::TERM };

const CONFIG: &str = "pgbouncer.ini";
const USERS: &str = "users";

/// The options of a PgBouncer.
#[derive(Clone, Debug)]
pub struct Bouncer {
    server: u16,
    lines: Vec<String>,
}

impl PgBouncer {
    /// Starts a PgBouncer in front of this server, with lines of `pgbouncer.ini` such as
    /// `default_pool_size = 2`, and waits until it accepts connections.
    ///
    /// # Errors
    /// [`Stop::missing`] if PgBouncer is not installed.
    pub async fn start(server: &PostgresServer, config: &[&str]) -> Result<Self, Stop> {
        let lines = config.iter().map(|&line| line.to_owned()).collect();
        Self::start_as(&KIND, &Bouncer { server: server.port(), lines }).await
    }

    /// Returns the URL for the owner of the database:
    /// `postgres://dlock:password@127.0.0.1:port/dlock`.
    pub fn url(&self) -> String {
        format!("postgres://{USER}:{PASSWORD}@{}/{DATABASE}", self.address())
    }
}

fn prepare(_: &Bouncer) -> BoxFuture<'_, Result<Directory, Stop>> {
    async { directory() }.boxed()
}

fn launch(directory: &Directory, options: &Bouncer, ports: Ports) -> Result<Launch, Stop> {
    let missing = || Stop::missing("pgbouncer is not installed: apt-get install pgbouncer");
    let program = find("pgbouncer").ok_or_else(missing)?;
    let users = [USER, ADMIN].map(|user| format!("\"{user}\" \"{PASSWORD}\"\n"));
    directory.write(USERS, &users.concat())?;
    let mut lines = vec![
        format!("[databases]\n* = host=127.0.0.1 port={}", options.server),
        format!("[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {}", ports.clients),
        "unix_socket_dir =\npool_mode = transaction".to_owned(),
        format!("auth_type = md5\nauth_file = {USERS}\nadmin_users = {ADMIN}"),
        // Drivers send this parameter, and all connections to the server have the same value.
        "ignore_startup_parameters = extra_float_digits".to_owned(),
    ];
    lines.extend(options.lines.iter().cloned());
    directory.write(CONFIG, &(lines.join("\n") + "\n"))?;
    Ok(directory.launch(&program, &[CONFIG]))
}

fn is_ready(server: &PgBouncer) -> BoxFuture<'_, Verdict> {
    async { server.printed("process up") }.boxed()
}
