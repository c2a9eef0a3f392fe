//! The flags that a server starts with.

use super::{Options, links::member, programs::Programs};
use crate::{Stop, home::Home, launch::Launch, port, tls};

/// The role of a server.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    Alone,
    /// The index in an ensemble of this many servers, and a number that only these servers have.
    Node(usize, usize, u32),
}

/// The ports of a server. Its part and its options decide which of them it uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    pub(super) clients: u16,
    pub(super) tls: u16,
    pub(super) peers: u16,
}

impl Ports {
    pub(super) fn free() -> Result<Self, Stop> {
        let [clients, tls, peers] = port::server_only()?;
        Ok(Self { clients, tls, peers })
    }
}

/// Returns the program to run.
pub(super) fn launch(
    home: &Home,
    programs: &Programs,
    part: Part,
    options: &Options,
    ports: Ports,
) -> Result<Launch, Stop> {
    if options.tls {
        home.certify()?;
    }
    let mut flags = flags(part, options, ports);
    if !options.fsync && programs.can_skip_fsync() {
        flags.push("--unsafe-no-fsync".to_owned());
    }
    flags.extend(options.flags.iter().cloned());
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    Ok(home.launch(&programs.etcd, &flags))
}

/// Returns the flags. Paths are relative to the home.
fn flags(part: Part, options: &Options, ports: Ports) -> Vec<String> {
    let plain = format!("http://127.0.0.1:{}", ports.clients);
    let secure = format!("https://127.0.0.1:{}", ports.tls);
    let (listen, advertise) = match options.tls {
        true => (format!("{plain},{secure}"), secure),
        false => (plain.clone(), plain),
    };
    // A server that is alone has no peers, so it needs no port for them.
    let (node, nodes, token, peers) = match part {
        Part::Alone => (0, 1, 0, member(0)),
        Part::Node(node, nodes, token) => {
            (node, nodes, token, format!("http://127.0.0.1:{}", ports.peers))
        }
    };
    let all: Vec<String> = (0..nodes).map(|n| format!("n{n}={}", member(n))).collect();
    let mut flags = vec![
        format!("--name=n{node}"),
        "--data-dir=data".to_owned(),
        format!("--listen-client-urls={listen}"),
        format!("--advertise-client-urls={advertise}"),
        format!("--listen-peer-urls={peers}"),
        format!("--initial-advertise-peer-urls={}", member(node)),
        format!("--initial-cluster={}", all.join(",")),
        format!("--initial-cluster-token=dlock-{token}"),
        "--logger=zap".to_owned(),
        // Passwords of tests need no protection.
        "--bcrypt-cost=4".to_owned(),
    ];
    if let Some((heartbeat, timeout)) = options.election {
        flags.push(format!("--heartbeat-interval={}", heartbeat.as_millis()));
        flags.push(format!("--election-timeout={}", timeout.as_millis()));
    }
    if options.tls {
        let (certificate, key) = tls::SERVER;
        flags.push(format!("--cert-file={certificate}"));
        flags.push(format!("--key-file={key}"));
    }
    if options.client_certificates {
        flags.push("--client-cert-auth".to_owned());
        flags.push(format!("--trusted-ca-file={}", tls::CA));
    }
    flags
}
