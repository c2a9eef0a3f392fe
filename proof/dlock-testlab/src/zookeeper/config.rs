//! The configuration that a server starts with.

use std::{fmt::Display, time::Duration};

use super::{Options, programs::Programs};
use crate::{Stop, home::Home, launch::Launch, port, tls};

const CONFIG: &str = "zoo.cfg";

/// The server's certificate with its key, in the format that Java requires.
const IDENTITY: &str = "server.pem";

/// Options that keep Java from leaving a file outside of the directory, and from using all
/// processors.
const JAVA: [&str; 2] = ["-XX:+UseSerialGC", "-XX:-UsePerfData"];

/// Options that keep the server small.
const SMALL: &[&str] = &["-Xmx128m", "-XX:TieredStopAtLevel=1"];
const ROOMY: &[&str] = &["-Xmx1g"];

/// The longest time for a starting server to sync with the others.
const INIT: Duration = Duration::from_secs(10);

/// The administrator, whom no access list restricts. `SUPER_DIGEST` is the digest of name and
/// password.
pub(super) const SUPER: &str = "super:dlock";
const SUPER_DIGEST: &str = "super:MqhGFigJhYpcEKMht/JoxZrTQHk=";

/// The role of a server.
#[derive(Clone, Debug)]
pub(super) enum Part {
    Alone,
    /// The server's number in the ensemble, from 1, and a line for each of the ensemble's servers.
    Node(usize, Vec<String>),
}

/// The ports of a server. It uses the second one only with TLS.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    pub(super) clients: u16,
    pub(super) tls: u16,
}

impl Ports {
    pub(super) fn free() -> Result<Self, Stop> {
        let [clients, tls] = port::server_only()?;
        Ok(Self { clients, tls })
    }
}

/// Writes the configuration, and returns the program to run with it.
pub(super) fn launch(
    home: &Home,
    programs: &Programs,
    part: &Part,
    options: &Options,
    ports: Ports,
) -> Result<Launch, Stop> {
    std::fs::create_dir(home.path().join("data"))?;
    if let Part::Node(number, _) = part {
        home.write("data/myid", &number.to_string())?;
    }
    if options.tls {
        home.certify()?;
        let (certificate, key) = tls::SERVER;
        let read = |name| std::fs::read_to_string(home.path().join(name));
        home.write(IDENTITY, &(read(key)? + &read(certificate)?))?;
    }
    home.write(CONFIG, &(config(part, options, ports).join("\n") + "\n"))?;
    let class = "org.apache.zookeeper.server.quorum.QuorumPeerMain";
    let properties = properties(options);
    let mut args = JAVA.to_vec();
    args.extend(if options.roomy { ROOMY } else { SMALL });
    args.extend(programs.archive.as_deref());
    args.extend(properties.iter().map(String::as_str));
    args.extend(["-cp", &programs.class_path, class, CONFIG]);
    Ok(home.launch(&programs.java, &args).with_clock(options.clock.as_ref()))
}

/// Returns the lines of the configuration. Paths are relative to the home.
fn config(part: &Part, options: &Options, ports: Ports) -> Vec<String> {
    let (tick, (shortest, longest)) = (options.tick, options.sessions());
    let mut lines = vec![
        format!("tickTime={}", tick.as_millis()),
        format!("initLimit={}", options.ticks(INIT)),
        format!("syncLimit={}", options.ticks(options.sync)),
        format!("minSessionTimeout={}", shortest.as_millis()),
        format!("maxSessionTimeout={}", longest.as_millis()),
        format!("dataDir=data\nclientPort={}\nclientPortAddress=127.0.0.1", ports.clients),
        "maxClientCnxns=0\nadmin.enableServer=false".to_owned(),
        format!("4lw.commands.whitelist={}", options.words),
        // In kilobytes. A log file has its full size from its start.
        "preAllocSize=64".to_owned(),
        format!("forceSync={}", if options.fsync { "yes" } else { "no" }),
    ];
    if options.tls {
        // The default implementation of connections does not support TLS.
        let netty = "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory";
        lines.push(netty.to_owned());
        lines.push(format!("secureClientPort={}", ports.tls));
        lines.push("secureClientPortAddress=127.0.0.1\nssl.clientAuth=none".to_owned());
        lines.push(format!("ssl.keyStore.location={IDENTITY}\nssl.keyStore.type=PEM"));
        lines.push(format!("ssl.trustStore.location={}\nssl.trustStore.type=PEM", tls::CA));
    }
    if let Part::Node(number, servers) = part {
        if options.observers {
            let role = |n| if n == 0 { "participant" } else { "observer" };
            lines.extend(servers.iter().enumerate().map(|(n, line)| format!("{line}:{}", role(n))));
            lines.push(format!("standaloneEnabled=false\npeerType={}", role(number - 1)));
        } else {
            lines.extend(servers.iter().cloned());
        }
    }
    lines.extend(options.lines.iter().cloned());
    lines
}

/// Returns the properties that can't be in the configuration file, where ZooKeeper adds a prefix to
/// names that it does not know.
fn properties(options: &Options) -> Vec<String> {
    let set = |name: &str, value: &dyn Display| format!("-D{name}={value}");
    let containers = options.containers.as_millis();
    let mut all = vec![
        set("znode.container.checkIntervalMs", &containers),
        set("znode.container.maxNeverUsedIntervalMs", &containers),
        set("zookeeper.extendedTypesEnabled", &true),
        set("readonlymode.enabled", &true),
        set("zookeeper.DigestAuthenticationProvider.superDigest", &SUPER_DIGEST),
        // A server that was alone for some time would look for others only once a minute.
        set("zookeeper.fastleader.maxNotificationInterval", &1000),
        // A leader without followers would wait for as long as a start may take.
        set("zookeeper.leader.maxTimeToWaitForEpoch", &3000),
        // Passing requests between threads costs more than processing them.
        set("zookeeper.nio.numSelectorThreads", &1),
        set("zookeeper.nio.numWorkerThreads", &0),
        set("zookeeper.commitProcessor.numWorkerThreads", &0),
        // These loggers write a line for each connection and each four-letter word.
        set("org.slf4j.simpleLogger.log.org.apache.zookeeper.server.NIOServerCnxn", &"warn"),
        set("org.slf4j.simpleLogger.log.org.apache.zookeeper.server.NettyServerCnxn", &"warn"),
        set("org.slf4j.simpleLogger.log.org.apache.zookeeper.server.command", &"warn"),
    ];
    all.extend(options.properties.iter().map(|(name, value)| set(name, value)));
    all
}
