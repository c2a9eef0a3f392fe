//! A Redis server in memory: what a client of dlock can ask of a single server, and its scripts.
//!
//! It behaves as Redis 7.0 does, with a clock that its user sets, and without replicas, transactions,
//! rights and further databases. Each connection speaks RESP3 from its beginning. The tests compare
//! it with a real server.

mod data;
mod resp;
mod scripts;
#[cfg(test)]
mod tests;

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use self::{
    data::{Data, integer, matches},
    resp::{Bytes, Value, next_command},
    scripts::Scripts,
};

/// The settings that `CONFIG GET` returns.
const SETTINGS: [(&str, &str); 5] = [
    ("appendfsync", "always"),
    ("min-replicas-to-write", "0"),
    ("no-appendfsync-on-rewrite", "no"),
    ("tcp-keepalive", "300"),
    ("timeout", "0"),
];

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
master_replid:RUN

# Cluster
cluster_enabled:0
";

/// One server process with its data.
///
/// It says that every write is on disk before it is answered.
pub(crate) struct Redis {
    run_id: u64,
    data: Rc<RefCell<Data>>,
    scripts: Scripts,
    /// The bytes of each connection that are no complete command yet.
    received: BTreeMap<u64, Bytes>,
}

/// A line of the data: `dlock:{BUCKET}KIND:NAME (LIFETIME): CLAIM VALUE`.
struct KeyLine<'a> {
    kind: &'a str,
    name: &'a str,
    claim: &'a str,
    value: &'a str,
}

impl<'a> KeyLine<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let (key, entry) = line.strip_prefix("dlock:{")?.split_once("): ")?;
        let key = key.split_once('}')?.1.rsplit_once(" (")?.0;
        let (kind, name) = key.split_once(':')?;
        let (claim, value) = entry.split_once(' ').unwrap_or((entry, ""));
        Some(Self { kind, name, claim, value })
    }
}

impl Redis {
    pub(crate) fn new(run_id: u64) -> Self {
        let data = Rc::default();
        Self { run_id, scripts: Scripts::new(&data), data, received: BTreeMap::new() }
    }

    /// Starts the server process again. Connections, channels and cached scripts are gone, and the
    /// data too unless the server keeps it.
    pub(crate) fn restart(&mut self, run_id: u64, keeps_data: bool) {
        self.data.borrow_mut().restart(keeps_data);
        self.run_id = run_id;
        self.scripts = Scripts::new(&self.data);
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
        let mut received = self.received.remove(&connection).unwrap_or_default();
        received.extend_from_slice(bytes);
        let mut sent = Vec::new();
        while let Some(words) = next_command(&mut received) {
            let answers = self.execute(connection, &words);
            // A message comes before the answer to the command that publishes it.
            let messages = std::mem::take(&mut self.data.borrow_mut().messages);
            let answers = answers.into_iter().map(|answer| (connection, answer));
            for (connection, value) in messages.into_iter().chain(answers) {
                match sent.last_mut() {
                    Some((last, bytes)) if *last == connection => value.write(bytes),
                    _ => {
                        let mut bytes = Vec::new();
                        value.write(&mut bytes);
                        sent.push((connection, bytes));
                    }
                }
            }
        }
        self.received.insert(connection, received);
        sent
    }

    /// Ends a connection.
    pub(crate) fn closed(&mut self, connection: u64) {
        self.received.remove(&connection);
        for verb in [&b"UNSUBSCRIBE"[..], b"SUNSUBSCRIBE"] {
            self.unsubscribe(connection, verb, &[]);
        }
    }

    /// Forgets the cached scripts, as `SCRIPT FLUSH` does.
    pub(crate) fn forget_scripts(&mut self) {
        self.scripts.forget();
    }

    /// Returns a line for each key, field and member that clients left behind, at this time of the
    /// server's clock. Last tokens and the marks of the restart guard are meant to stay. Claims that
    /// have expired stay until the next operation on their name.
    pub(crate) fn left(&mut self, now: u64) -> Vec<String> {
        let mut data = self.data.borrow_mut();
        data.now = now;
        let lines = data.lines().into_iter();
        let lines: Vec<String> =
            lines.map(|line| String::from_utf8_lossy(&line).into_owned()).collect();
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
            Some(KeyLine { kind: "f" | "?guard", .. }) => false,
            Some(KeyLine { kind: "q" | "r" | "w", name, claim, .. }) => {
                live.contains(&(name, claim))
            }
            _ => true,
        };
        lines.iter().filter(is_left).cloned().collect()
    }

    fn execute(&mut self, connection: u64, words: &[Bytes]) -> Vec<Value> {
        let name = words.first().expect("a command has a name").to_ascii_uppercase();
        let answer = match (name.as_slice(), words.len()) {
            (b"SUBSCRIBE" | b"SSUBSCRIBE", 2..) => {
                return self.subscribe(connection, &name, &words[1..]);
            }
            (b"UNSUBSCRIBE" | b"SUNSUBSCRIBE", _) => {
                return self.unsubscribe(connection, &name, &words[1..]);
            }
            (b"EVAL", 3..) => self.scripts.eval(words),
            (b"EVALSHA", 3..) => self.scripts.eval_by_digest(words),
            (b"SCRIPT", 2..) => self.scripts.script(words),
            (b"HELLO", _) => hello(connection, words),
            (b"SELECT", 2) => select(words),
            (b"CLIENT", 2..) => client(connection, words),
            (b"CONFIG", 2..) => config(words),
            (b"INFO", _) => Value::Verbatim(self.info()),
            _ => self.data.borrow_mut().run(words),
        };
        vec![answer]
    }

    fn subscribe(&mut self, connection: u64, verb: &[u8], channels: &[Bytes]) -> Vec<Value> {
        let mut data = self.data.borrow_mut();
        let subscribe = |channel: &Bytes| {
            let count = data.subscribe(connection, verb.starts_with(b"SS"), channel);
            notice(verb, Value::text(channel), count)
        };
        channels.iter().map(subscribe).collect()
    }

    /// Ends these subscriptions, or all if there are none.
    fn unsubscribe(&mut self, connection: u64, verb: &[u8], channels: &[Bytes]) -> Vec<Value> {
        let (mut data, is_sharded) = (self.data.borrow_mut(), verb.starts_with(b"SU"));
        let mut channels = channels.to_vec();
        if channels.is_empty() {
            channels = data.subscriptions(connection, is_sharded);
        }
        if channels.is_empty() {
            return vec![notice(verb, Value::Null, 0)];
        }
        let unsubscribe = |channel: &Bytes| {
            let count = data.unsubscribe(connection, is_sharded, channel);
            notice(verb, Value::text(channel), count)
        };
        channels.iter().map(unsubscribe).collect()
    }

    /// All sections, whichever were asked for.
    fn info(&self) -> String {
        INFO.replace('\n', "\r\n").replace("RUN", &format!("{:040x}", self.run_id))
    }
}

/// `HELLO 3 [AUTH user password] [SETNAME name]`. Any password is right.
fn hello(connection: u64, words: &[Bytes]) -> Value {
    if words.get(1).is_some_and(|version| version != b"3") {
        return Value::error("NOPROTO unsupported protocol version");
    }
    let fields = [
        ("server", Value::text("redis")),
        ("version", Value::text("7.0.15")),
        ("proto", Value::Integer(3)),
        ("id", id(connection)),
        ("mode", Value::text("standalone")),
        ("role", Value::text("master")),
        ("modules", Value::Array(Vec::new())),
    ];
    Value::Map(fields.into_iter().map(|(name, value)| (Value::text(name), value)).collect())
}

fn select(words: &[Bytes]) -> Value {
    match integer(&words[1]) {
        Ok(0) => Value::ok(),
        Ok(_) => Value::error("ERR DB index is out of range"),
        Err(refusal) => refusal,
    }
}

/// `CLIENT ID` and `CLIENT SETNAME name`. Redis 7.0 does not know `CLIENT SETINFO`.
fn client(connection: u64, words: &[Bytes]) -> Value {
    match (words[1].to_ascii_uppercase().as_slice(), words.len()) {
        (b"ID", 2) => id(connection),
        (b"SETNAME", 3) => Value::ok(),
        _ => unknown_subcommand(words),
    }
}

/// `CONFIG GET pattern [pattern ...]`.
fn config(words: &[Bytes]) -> Value {
    match (words[1].to_ascii_uppercase().as_slice(), &words[2..]) {
        (b"GET", patterns @ [_, ..]) => {
            let found = SETTINGS.iter().filter(|(name, _)| {
                patterns.iter().any(|pattern| matches(pattern, name.as_bytes()))
            });
            Value::Map(found.map(|(name, value)| (Value::text(name), Value::text(value))).collect())
        }
        _ => unknown_subcommand(words),
    }
}

/// The answer to a subscription or to its end, with the number of those that are left.
fn notice(verb: &[u8], channel: Value, left: usize) -> Value {
    Value::Push(vec![Value::text(verb.to_ascii_lowercase()), channel, Value::count(left)])
}

fn id(connection: u64) -> Value {
    Value::Integer(i64::try_from(connection).unwrap_or(i64::MAX))
}

fn unknown_subcommand(words: &[Bytes]) -> Value {
    let (name, subcommand) =
        (String::from_utf8_lossy(&words[0]), String::from_utf8_lossy(&words[1]));
    let name = name.to_uppercase();
    Value::error(format!("ERR unknown subcommand '{subcommand}'. Try {name} HELP."))
}
