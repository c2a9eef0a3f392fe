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

/// A PgBouncer in transaction mode, which dies with this value: each transaction of a client may
/// get another connection to the server.
///
/// It knows the owner of the database and the administrator.
#[derive(Debug)]
pub struct PgBouncer {
    instance: Instance,
}

impl PgBouncer {
    /// Starts one in front of this server, with lines of `pgbouncer.ini` such as
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
        format!("postgres://{USER}:{PASSWORD}@{}/{DATABASE}", self.address())
    }

    /// Where its configuration and log are.
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

    /// Kills it if it runs, and starts it again on the same port. Waits until it accepts
    /// connections.
    ///
    /// # Errors
    /// When it does not start, or somebody else keeps its port.
    pub async fn restart(&self) -> Verdict {
        self.instance.restart().await
    }
}

/// Writes the configuration, and says what to run with it.
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
        // Drivers ask for it, and all connections to the server have the same.
        "ignore_startup_parameters = extra_float_digits".to_owned(),
    ];
    lines.extend(config.iter().map(|&line| line.to_owned()));
    home.write(CONFIG, &(lines.join("\n") + "\n"))?;
    Ok(home.launch(program, &[CONFIG]))
}

fn is_ready(daemon: &Daemon) -> bool {
    daemon.has_printed("process up")
}
