//! What a server is started with.

use std::{fmt::Display, time::Duration};

use super::{Options, programs::Programs};
use crate::{Stop, home::Home, launch::Launch, port, tls};

const CONFIG: &str = "zoo.cfg";

/// The server's certificate with its key, as Java wants them.
const IDENTITY: &str = "server.pem";

/// What keeps Java from leaving a file outside of the directory, and from taking all processors.
const JAVA: [&str; 2] = ["-XX:+UseSerialGC", "-XX:-UsePerfData"];

/// What keeps it small.
const SMALL: &[&str] = &["-Xmx128m", "-XX:TieredStopAtLevel=1"];
const ROOMY: &[&str] = &["-Xmx1g"];

/// How long a server that starts may take to learn what the others know.
const INIT: Duration = Duration::from_secs(10);

/// The administrator, to whom no access list applies, and the digest of name and password.
pub(super) const SUPER: &str = "super:dlock";
const SUPER_DIGEST: &str = "super:MqhGFigJhYpcEKMht/JoxZrTQHk=";

/// What a server is part of.
#[derive(Clone, Debug)]
pub(super) enum Part {
    Alone,
    /// The number in the ensemble, from 1, and a line for each of its servers.
    Node(usize, Vec<String>),
}

/// The ports of a server; it uses the second with TLS only.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    pub(super) clients: u16,
    pub(super) tls: u16,
}

impl Ports {
    pub(super) fn free() -> Result<Self, Stop> {
        let [clients, tls] = port::quiet()?;
        Ok(Self { clients, tls })
    }
}

/// Writes the configuration, and says what to run with it.
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

/// The lines of the configuration. Paths are seen from the home.
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
        // Kilobytes: a log file takes its whole size from its start.
        "preAllocSize=64".to_owned(),
        format!("forceSync={}", if options.fsync { "yes" } else { "no" }),
    ];
    if options.tls {
        // The other way to serve connections does not speak it.
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

/// What can't stand in the configuration, which puts a prefix before names that it does not know.
fn properties(options: &Options) -> Vec<String> {
    let set = |name: &str, value: &dyn Display| format!("-D{name}={value}");
    let containers = options.containers.as_millis();
    let mut all = vec![
        set("znode.container.checkIntervalMs", &containers),
        set("znode.container.maxNeverUsedIntervalMs", &containers),
        set("zookeeper.extendedTypesEnabled", &true),
        set("readonlymode.enabled", &true),
        set("zookeeper.DigestAuthenticationProvider.superDigest", &SUPER_DIGEST),
        // A server alone for some time would look for others once a minute only.
        set("zookeeper.fastleader.maxNotificationInterval", &1000),
        // A leader that nobody follows would wait for as long as a start may take.
        set("zookeeper.leader.maxTimeToWaitForEpoch", &3000),
        // Threads that hand requests to each other cost more than what they do with them.
        set("zookeeper.nio.numSelectorThreads", &1),
        set("zookeeper.nio.numWorkerThreads", &0),
        set("zookeeper.commitProcessor.numWorkerThreads", &0),
        // They say for each look that there was one.
        set("org.slf4j.simpleLogger.log.org.apache.zookeeper.server.NIOServerCnxn", &"warn"),
        set("org.slf4j.simpleLogger.log.org.apache.zookeeper.server.NettyServerCnxn", &"warn"),
        set("org.slf4j.simpleLogger.log.org.apache.zookeeper.server.command", &"warn"),
    ];
    all.extend(options.properties.iter().map(|(name, value)| set(name, value)));
    all
}
