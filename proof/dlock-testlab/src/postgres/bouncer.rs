//! A PgBouncer in front of a server.

use std::path::Path;

use super::{
    PostgresServer,
    data::{ADMIN, DATABASE, PASSWORD, USER, home},
};
use crate::{
    Stop, Verdict,
    daemon::Daemon,
    home::Home,
    instance::{Instance, Kind},
    launch::Launch,
    program::find,
};

const KIND: Kind = Kind { name: "pgbouncer", is_ready };

const CONFIG: &str = "pgbouncer.ini";
const USERS: &str = "users";

/// A PgBouncer in transaction mode: each transaction of a client may get another connection to the
/// server. It ends when this value is dropped.
///
/// It accepts the owner of the database and the administrator.
#[derive(Debug)]
pub struct PgBouncer {
    instance: Instance,
}

impl PgBouncer {
    /// Starts a PgBouncer in front of this server, with lines of `pgbouncer.ini` such as
    /// `default_pool_size = 2`, and waits until it accepts connections.
    ///
    /// # Errors
    /// [`Stop::missing`] if PgBouncer is not installed.
    pub async fn start(server: &PostgresServer, config: &[&str]) -> Result<Self, Stop> {
        let missing = || Stop::missing("pgbouncer is not installed: apt-get install pgbouncer");
        let program = find("pgbouncer").ok_or_else(missing)?;
        let home = home()?;
        let users = [USER, ADMIN].map(|user| format!("\"{user}\" \"{PASSWORD}\"\n"));
        home.write(USERS, &users.concat())?;
        let launch = |home: &Home, port| launch(home, &program, server, config, port);
        Ok(Self { instance: Instance::start(KIND, home, launch).await? })
    }

    /// Returns the port that it listens on. A restart does not change it.
    pub fn port(&self) -> u16 {
        self.instance.port()
    }

    /// Returns the address that it listens on: `127.0.0.1:port`.
    pub fn address(&self) -> String {
        self.instance.address()
    }

    /// Returns the URL for the owner of the database:
    /// `postgres://dlock:password@127.0.0.1:port/dlock`.
    pub fn url(&self) -> String {
        format!("postgres://{USER}:{PASSWORD}@{}/{DATABASE}", self.address())
    }

    /// Returns the directory of its configuration and log.
    pub fn directory(&self) -> &Path {
        self.instance.directory()
    }

    /// Returns the process id; `None` while it is killed.
    pub fn pid(&self) -> Option<u32> {
        self.instance.pid()
    }

    /// Pauses it: connections stay open and get no answers. The process is stopped when this
    /// returns.
    ///
    /// # Errors
    /// If it was killed, or does not stop.
    pub fn pause(&self) -> Verdict {
        self.instance.pause()
    }

    /// Continues it after a pause.
    ///
    /// # Errors
    /// If it was killed.
    pub fn resume(&self) -> Verdict {
        self.instance.resume()
    }

    /// Kills it without a chance to clean up. It has ended when this returns.
    pub fn kill(&self) {
        self.instance.kill();
    }

    /// Kills it if it runs, and restarts it on the same port. Waits until it accepts connections.
    ///
    /// # Errors
    /// If it does not start, or another process keeps its port.
    pub async fn restart(&self) -> Verdict {
        self.instance.restart().await
    }
}

/// Writes the configuration, and returns the program to run with it.
fn launch(
    home: &Home,
    program: &Path,
    server: &PostgresServer,
    config: &[&str],
    port: u16,
) -> Result<Launch, Stop> {
    let mut lines = vec![
        format!("[databases]\n* = host=127.0.0.1 port={}", server.port()),
        format!("[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}"),
        "unix_socket_dir =\npool_mode = transaction".to_owned(),
        format!("auth_type = md5\nauth_file = {USERS}\nadmin_users = {ADMIN}"),
        // Drivers send this parameter, and all connections to the server have the same value.
        "ignore_startup_parameters = extra_float_digits".to_owned(),
    ];
    lines.extend(config.iter().map(|&line| line.to_owned()));
    home.write(CONFIG, &(lines.join("\n") + "\n"))?;
    Ok(home.launch(program, &[CONFIG]))
}

fn is_ready(daemon: &Daemon) -> bool {
    daemon.has_printed("process up")
}
