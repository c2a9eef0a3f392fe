//! Starts a server.

use rustix::process::Signal;

use super::{Options, data::QUICK, programs::Programs};
use crate::{
    Stop, daemon::Daemon, home::Home, instance::Kind, launch::Launch, template::DATA, tls,
};

/// Makes the server disconnect its clients and end.
pub(super) const ORDERLY: Signal = Signal::TERM;

pub(super) const KIND: Kind = Kind { name: "mariadbd", is_ready };

const CONFIG: &str = "my.cnf";

/// Writes the configuration, and returns the program to run with it.
pub(super) fn launch(
    home: &Home,
    programs: &Programs,
    options: &Options,
    port: u16,
) -> Result<Launch, Stop> {
    home.write(CONFIG, &(config(home, options, port).join("\n") + "\n"))?;
    // With this option the server reads no other configuration file.
    let file = format!("--defaults-file={}", home.path().join(CONFIG).display());
    Ok(home.launch(&programs.server, &[&file]).with_clock(options.clock.as_ref()))
}

/// Returns the lines of the configuration.
fn config(home: &Home, options: &Options, port: u16) -> Vec<String> {
    let path = |name: &str| home.path().join(name).display().to_string();
    let mut lines = vec![
        "[mariadbd]".to_owned(),
        format!("datadir = {}", path(DATA)),
        format!("tmpdir = {}", path(DATA)),
        "bind_address = 127.0.0.1".to_owned(),
        format!("port = {port}"),
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
        let (certificate, key) = tls::SERVER;
        lines.push(format!("ssl_ca = {}", path(tls::CA)));
        lines.push(format!("ssl_cert = {}\nssl_key = {}", path(certificate), path(key)));
    }
    lines.extend(options.lines.iter().cloned());
    lines
}

fn is_ready(daemon: &Daemon) -> bool {
    daemon.has_printed("ready for connections")
}
