//! Starts a server.

use rustix::process::Signal;

use super::{Options, programs::Programs};
use crate::{
    Stop,
    daemon::Daemon,
    home::Home,
    instance::Kind,
    launch::{Children, Launch},
    template::DATA,
    tls,
};

/// Makes the server disconnect its clients and end.
pub(super) const FAST: Signal = Signal::INT;

pub(super) const KIND: Kind = Kind { name: "postgres", is_ready };

/// The file in which a server reports its state.
const STATE: &str = "data/postmaster.pid";

/// Writes the configuration, and returns the program to run with it.
pub(super) fn launch(
    home: &Home,
    programs: &Programs,
    options: &Options,
    port: u16,
) -> Result<Launch, Stop> {
    home.write("data/postgresql.conf", &(config(options, port).join("\n") + "\n"))?;
    let launch = home.launch(&programs.path("postgres")?, &["-D", DATA]);
    Ok(launch.with_children(Children::Apart).with_clock(options.clock.as_ref()))
}

/// Returns the lines of the configuration. Paths are relative to the data directory.
fn config(options: &Options, port: u16) -> Vec<String> {
    let switch = |on| if on { "on" } else { "off" };
    let mut lines = vec![
        "listen_addresses = '127.0.0.1'".to_owned(),
        format!("port = {port}"),
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
        let (certificate, key) = tls::SERVER;
        lines.push(format!("ssl = on\nssl_ca_file = '../{}'", tls::CA));
        lines.push(format!("ssl_cert_file = '../{certificate}'\nssl_key_file = '../{key}'"));
    }
    lines.extend(options.lines.iter().cloned());
    lines
}

/// The first line of the file is the process id, the eighth is the server's status.
fn is_ready(daemon: &Daemon) -> bool {
    let state = std::fs::read_to_string(daemon.directory().join(STATE)).unwrap_or_default();
    let lines: Vec<&str> = state.lines().map(str::trim).collect();
    let pid = daemon.pid().map(|pid| pid.to_string());
    lines.first().copied() == pid.as_deref() && lines.get(7) == Some(&"ready")
}
