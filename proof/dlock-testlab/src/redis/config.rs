//! The configuration that a server starts with.

use std::path::{Path, PathBuf};

use super::{Options, Persistence};
use crate::{Stop, port, program::find, tls};

/// File names in the server's directory.
pub(super) const CONFIG: &str = "redis.conf";
pub(super) const SOCKET: &str = "redis.sock";

/// The role of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Alone,
    Cluster,
    Sentinel,
}

/// The ports of a server. Its options decide which of them it uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    pub(super) clients: u16,
    pub(super) bus: u16,
    pub(super) tls: u16,
}

impl Ports {
    pub(super) fn free() -> Result<Self, Stop> {
        let [clients, bus, tls] = port::free()?;
        Ok(Self { clients, bus, tls })
    }
}

/// Returns the lines of the configuration. Redis writes into the file itself after a failover, so
/// the file is written once and not at a restart.
pub(super) fn config(part: Part, options: &Options, directory: &Path, ports: Ports) -> Vec<String> {
    let directory = directory.display();
    let mut lines = vec![
        "bind 127.0.0.1".to_owned(),
        "protected-mode no".to_owned(),
        format!("port {}", ports.clients),
        format!("dir \"{directory}\""),
    ];
    if part != Part::Sentinel {
        // Replicas sync at once instead of waiting for more replicas.
        let fast = ["save \"\"", "repl-diskless-sync yes", "repl-diskless-sync-delay 0"];
        lines.extend(fast.map(str::to_owned));
        lines.push(match options.persistence {
            Persistence::None => "appendonly no".to_owned(),
            Persistence::AofAlways => "appendonly yes\nappendfsync always".to_owned(),
        });
    }
    if part == Part::Cluster {
        lines.push(format!("cluster-enabled yes\ncluster-port {}", ports.bus));
    }
    if options.socket {
        lines.push(format!("unixsocket \"{directory}/{SOCKET}\""));
    }
    if options.tls {
        let (certificate, key) = tls::SERVER;
        lines.push(format!("tls-port {}\ntls-auth-clients no", ports.tls));
        lines.push(format!("tls-ca-cert-file {}\ntls-cert-file {certificate}", tls::CA));
        lines.push(format!("tls-key-file {key}"));
    }
    if let Some(password) = &options.password {
        lines.push(format!("requirepass {password}\nmasterauth {password}"));
    }
    lines.extend(options.lines.iter().cloned());
    lines
}

/// Returns the path of the server's program.
pub(super) fn program() -> Result<PathBuf, Stop> {
    match std::env::var("DLOCK_TEST_REDIS_SERVER") {
        Ok(path) => find(&path).ok_or_else(|| {
            Stop::missing(format!("DLOCK_TEST_REDIS_SERVER is {path}, which does not exist"))
        }),
        Err(_) => find("redis-server").ok_or_else(|| {
            Stop::missing("redis-server is not installed: apt-get install redis-server")
        }),
    }
}
