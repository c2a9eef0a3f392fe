//! A Redis server in memory: what a client of dlock can ask of a single server, and its scripts.
//!
//! It behaves as Redis 7.0 does, with a clock that its user sets. Its user also carries its data to
//! its replicas. Each connection speaks RESP3 from its beginning. The tests compare it with a real
//! server.

#[cfg(dlock_sim)]
mod cluster;
mod data;
mod peers;
#[cfg(dlock_sim)]
mod quorum;
mod resp;
mod scripts;
#[cfg(dlock_sim)]
mod sentinel;
mod slots;
#[cfg(dlock_sim)]
mod store;
#[cfg(test)]
pub(crate) mod tests;

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

#[cfg(dlock_sim)]
pub(crate) use self::{
    cluster::ClusterStore, quorum::QuorumStore, sentinel::SentinelStore, store::RedisStore,
};
use self::{
    data::{Data, notice},
    peers::Replication,
    resp::{Bytes, Value, next_command},
    scripts::Scripts,
    slots::Member,
};

/// What `CONFIG GET *appendfsync*` returns.
const SETTINGS: [(&str, &str); 2] =
    [("appendfsync", "always"), ("no-appendfsync-on-rewrite", "no")];

/// The fields of `INFO` that dlock reads. `RUN` stands for the id of the run.
const INFO: &str = "\
# Server
redis_version:7.0.15
redis_mode:standalone
run_id:RUN

# Memory
maxmemory:0
maxmemory_policy:noeviction

# Persistence
loading:0
aof_enabled:1
aof_rewrite_in_progress:0
aof_rewrite_scheduled:0
aof_last_write_status:ok

# Replication
role:master
connected_slaves:0
master_replid:HISTORY-RUN

# Cluster
cluster_enabled:0
";

/// One server process with its data.
///
/// It says that every write is on disk before it is answered.
pub(crate) struct Redis {
    run_id: u64,
    /// The id of the history that its data belong to. Replicas share it with their master.
    history: u64,
    replication: Replication,
    /// Its place in a cluster.
    member: Option<Member>,
    data: Rc<RefCell<Data>>,
    scripts: Scripts,
    /// The bytes of each connection that are no complete command yet.
    received: BTreeMap<u64, Bytes>,
}

/// A line of the data: `dlock:{BUCKET}KIND:NAME (LIFETIME): CLAIM VALUE`.
struct KeyLine<'a> {
    kind: &'a str,
    name: &'a str,
    /// Milliseconds; 0 if it has no end.
    #[cfg_attr(not(dlock_sim), expect(dead_code, reason = "the simulation reads it"))]
    lifetime: u64,
    claim: &'a str,
    value: &'a str,
}

impl<'a> KeyLine<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let (key, entry) = line.strip_prefix("dlock:{")?.split_once("): ")?;
        let (key, lifetime) = key.split_once('}')?.1.rsplit_once(" (")?;
        let lifetime = lifetime.trim_end_matches(" ms").parse().unwrap_or(0);
        let (kind, name) = key.split_once(':')?;
        let (claim, value) = entry.split_once(' ').unwrap_or((entry, ""));
        Some(Self { kind, name, lifetime, claim, value })
    }
}

impl Redis {
    pub(crate) fn new(run_id: u64) -> Self {
        let data = Rc::default();
        let (scripts, replication) = (Scripts::new(&data), Replication::default());
        let received = BTreeMap::new();
        Self { run_id, history: run_id, replication, member: None, scripts, data, received }
    }

    /// Changes the scripts that clients send.
    #[cfg(dlock_sim)]
    pub(crate) fn with_patches(mut self, patches: &'static [(&'static str, &'static str)]) -> Self {
        self.scripts = self.scripts.with_patches(patches);
        self
    }

    /// Starts the server process again. Connections, channels and cached scripts are gone, and the
    /// data too unless the server keeps it.
    pub(crate) fn restart(&mut self, run_id: u64, keeps_data: bool) {
        self.data.borrow_mut().restart(keeps_data);
        (self.run_id, self.history) = (run_id, run_id);
        self.replication.reset();
        self.scripts = Scripts::new(&self.data).with_patches(self.scripts.patches);
        self.received.clear();
    }

    /// Receives bytes of a connection at this time of the server's clock, in microseconds. Returns
    /// the bytes to send, in order, each with its connection.
    pub(crate) fn receive(
        &mut self,
        connection: u64,
        bytes: &[u8],
        now: u64,
    ) -> Vec<(u64, Vec<u8>)> {
        self.data.borrow_mut().now = now;
        self.received.entry(connection).or_default().extend_from_slice(bytes);
        self.serve(connection)
    }

    /// Executes what a connection has sent, unless it waits for replicas.
    fn serve(&mut self, connection: u64) -> Vec<(u64, Vec<u8>)> {
        let mut received = self.received.remove(&connection).unwrap_or_default();
        let mut sent = Vec::new();
        while !self.replication.waits.contains_key(&connection)
            && let Some(words) = next_command(&mut received)
        {
            let answers = match self.redirect(connection, &words) {
                Some(answer) => vec![answer],
                None => self.execute(connection, &words),
            };
            self.replicate(connection);
            // A message comes before the answer to the command that publishes it.
            let messages = std::mem::take(&mut self.data.borrow_mut().messages);
            let answers = answers.into_iter().map(|answer| (connection, answer));
            for (connection, value) in messages.into_iter().chain(answers) {
                match sent.last_mut() {
                    Some((last, bytes)) if *last == connection => value.write(bytes),
                    _ => sent.push((connection, value.encoded())),
                }
            }
        }
        self.received.insert(connection, received);
        sent
    }

    /// Ends a connection.
    pub(crate) fn closed(&mut self, connection: u64) {
        self.received.remove(&connection);
        self.replication.closed(connection);
        self.data.borrow_mut().subscriptions.retain(|(.., of)| *of != connection);
    }

    /// Returns a line for each key, field and member at this time of the server's clock.
    fn lines(&mut self, now: u64) -> Vec<String> {
        let mut data = self.data.borrow_mut();
        data.now = now;
        let lines = data.lines().into_iter();
        lines.map(|line| String::from_utf8_lossy(&line).into_owned()).collect()
    }

    /// Returns a line for each key, field and member that clients left behind, at this time of the
    /// server's clock. Last tokens and the marks of the restart guard are meant to stay. Claims that
    /// have expired stay until the next operation on their name.
    pub(crate) fn left(&mut self, now: u64) -> Vec<String> {
        let lines = self.lines(now);
        let entries: Vec<_> = lines.iter().filter_map(|line| KeyLine::read(line)).collect();
        let is_later = |time: &str| time.parse::<u64>().is_ok_and(|time| time > now);
        // A shared holder has a record among the waiters, too.
        let live: BTreeSet<_> = entries
            .iter()
            .filter(|entry| match entry.kind {
                "r" => is_later(entry.value),
                "w" => entry.value.split(':').nth(4).is_some_and(is_later),
                _ => false,
            })
            .map(|entry| (entry.name, entry.claim))
            .collect();
        let is_left = |line: &&String| match KeyLine::read(line) {
            Some(KeyLine { kind: "?guard", .. }) => false,
            Some(KeyLine { kind: "q" | "r" | "w", name, claim, .. }) => {
                live.contains(&(name, claim))
            }
            // The tokens of a bucket stay.
            None => !line.contains("}t ("),
            _ => true,
        };
        lines.iter().filter(is_left).cloned().collect()
    }

    fn execute(&mut self, connection: u64, words: &[Bytes]) -> Vec<Value> {
        let name = words.first().expect("a command has a name").to_ascii_uppercase();
        vec![match name.as_slice() {
            b"SUBSCRIBE" => return self.subscribe(connection, false, &words[1..]),
            b"SSUBSCRIBE" => return self.subscribe(connection, true, &words[1..]),
            b"WAIT" => return self.wait(connection, words).into_iter().collect(),
            b"EVAL" => self.scripts.eval(words),
            b"EVALSHA" => self.scripts.eval_by_digest(words),
            b"HELLO" => map(&[("proto", "3")]),
            b"CLIENT" => client(words),
            b"CONFIG" => map(&SETTINGS),
            b"INFO" => Value::Verbatim(self.info()),
            _ => self.data.borrow_mut().run(words),
        }]
    }

    fn subscribe(&mut self, connection: u64, is_sharded: bool, channels: &[Bytes]) -> Vec<Value> {
        let verb = if is_sharded { "ssubscribe" } else { "subscribe" };
        let mut data = self.data.borrow_mut();
        let subscribe = |channel: &Bytes| {
            notice(verb, channel, data.subscribe(connection, is_sharded, channel))
        };
        channels.iter().map(subscribe).collect()
    }

    /// All sections, whichever were asked for.
    fn info(&self) -> String {
        let role = if self.data.borrow().is_replica { "role:slave" } else { "role:master" };
        let replicas = format!("connected_slaves:{}", self.replication.acknowledged.len());
        let is_member = u8::from(self.member.is_some());
        INFO.replace("role:master", role)
            .replace("cluster_enabled:0", &format!("cluster_enabled:{is_member}"))
            .replace("connected_slaves:0", &replicas)
            .replace('\n', "\r\n")
            .replace("HISTORY-RUN", &format!("{:040x}", self.history))
            .replace("RUN", &format!("{:040x}", self.run_id))
    }
}

/// `CLIENT SETINFO name value`, which Redis 7.0 does not know.
fn client(words: &[Bytes]) -> Value {
    let subcommand = String::from_utf8_lossy(&words[1]);
    Value::error(format!("ERR unknown subcommand '{subcommand}'. Try CLIENT HELP."))
}

/// A map of texts.
fn map(pairs: &[(&str, &str)]) -> Value {
    Value::Map(pairs.iter().map(|(name, value)| (Value::text(name), Value::text(value))).collect())
}
