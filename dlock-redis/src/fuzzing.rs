//! The properties of all parsers of this crate, for arbitrary bytes. Each parser has one function,
//! which panics if a property does not hold.
//!
//! `proof/fuzz/` runs them for long, and the tests below run them briefly. A normal build does not
//! contain this module.

use std::{collections::HashMap, time::Duration};

use dlock_core::{BackendUrl, Certainty, ErrorKind, FencingToken, Instant, LockName, LockOptions};
use redis::Value;

use crate::{
    Durability, RedisConfig,
    config::Topology,
    durable::won,
    error::{IN_SCRIPT, explain, remedy_of},
    inspect,
    keys::{BUCKETS, Bucket, Keys, literal, name_of},
    link::{
        cluster::{
            map::{Map, address},
            route::{Route, bucket_of},
        },
        sentinel::named,
        server_info::ServerInfo,
    },
    reply::{self, ClaimStatus},
    waiters,
};

#[cfg(test)]
mod tests;

/// The longest text of an error of dlock's own, whatever input it describes, because errors go to
/// logs.
const LONGEST_ERROR: usize = 1200;

/// The passwords in the URLs here.
const SECRET: &str = "hunter2";

/// A URL: an accepted one obeys the bounds.
pub fn url(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let config = match RedisConfig::from_url(text) {
        Ok(config) => config,
        Err(error) => return assert!(error.to_string().len() <= LONGEST_ERROR, "{error}"),
    };
    let count = config.addresses.len();
    match &config.topology {
        Topology::Socket => assert!(config.addresses[0].starts_with('/')),
        _ => {
            for address in &config.addresses {
                assert_eq!(BackendUrl::with_port(address, 1).as_ref(), Ok(address));
            }
        }
    }
    match &config.topology {
        Topology::Single | Topology::Socket => assert_eq!(count, 1),
        Topology::Sentinel(master) => assert!(count > 0 && !master.is_empty()),
        Topology::Cluster => assert!(count > 0 && config.database == 0 && !config.plain),
        Topology::Quorum => {
            assert!(count >= 3 && count % 2 == 1 && config.durability == Durability::Master);
            assert!((1..count).all(|at| !config.addresses[..at].contains(&config.addresses[at])));
        }
    }
    assert!(config.database >= 0);
    assert!(config.login.user.is_none() || config.login.password.is_some());
    assert!(!matches!(config.durability, Durability::Replicas(n) if n == 0 || n > 64));
    let within = |time: Duration, from, to| assert!(time >= from && time <= to, "{time:?}");
    within(config.response_timeout, Duration::from_millis(10), Duration::from_secs(60));
    within(config.restart_guard.unwrap_or_default(), Duration::ZERO, LockOptions::MAX_LEASE);
}

/// A URL with a password of any characters: no output shows the password.
pub fn url_password(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if text.contains(SECRET) {
        return;
    }
    let mut pieces = text.splitn(4, '\n');
    let mut piece = || pieces.next().unwrap_or_default();
    let kind = match piece() {
        "" => "",
        kind if kind.len() % 2 == 0 => "+sentinel",
        _ => "+unix",
    };
    let url = format!("redis{kind}://user:{}{SECRET}{}@host/{}", piece(), piece(), piece());
    let shown = match RedisConfig::from_url(&url) {
        Ok(config) => format!("{config:?} {}", config.store()),
        Err(error) => format!("{error} {error:?}"),
    };
    assert!(!shown.contains(SECRET), "{url} shows as {shown}");
}

/// A lock's name as keys: all keys are in one slot, and each contains the name and its kind, so
/// that two names never share a key.
pub fn keys(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(name) = LockName::new(text) else { return };
    let keys = Keys::of(&name);
    let bucket = Bucket::of(&name).number();
    assert!(u64::from(bucket) < BUCKETS);
    assert_eq!(keys.all().count(), Keys::COUNT);
    for (key, kind) in keys.all().filter(|key| *key != keys.tokens()).zip(["", "q", "w", "r"]) {
        let rest = key.strip_prefix(&format!("dlock:{{{bucket}}}"));
        assert_eq!(rest.and_then(|rest| rest.split_once(':')), Some((kind, text)));
        assert_eq!(name_of(key.as_bytes()).as_ref(), Some(&name));
        let mut command = redis::cmd("GET");
        command.arg(key);
        assert_eq!(bucket_of(&command), Some(usize::from(bucket)));
    }
    assert_eq!(unescaped(&literal(text)), text);
    assert_eq!(keys.tokens(), format!("dlock:{{{bucket}}}t"));
    assert!(keys.all().take(2).eq([keys.holder(), keys.tokens()]));
}

/// Returns the text that a pattern without a wildcard matches.
fn unescaped(pattern: &str) -> String {
    let mut chars = pattern.chars();
    let mut text = String::new();
    while let Some(c) = chars.next() {
        assert!(!"*?[".contains(c), "{pattern} matches more than one text");
        text.extend(if c == '\\' { chars.next() } else { Some(c) });
    }
    text
}

/// The answer of a script or of `TIME`: an accepted one obeys the bounds, and any other is a short
/// error.
pub fn reply(data: &[u8]) {
    let answer = value(data);
    match reply::status(&answer) {
        Ok(status) => {
            assert_eq!(won(&answer), status.is_held());
            let list = Value::Array(vec![answer.clone(), answer.clone()]);
            assert_eq!(reply::statuses(&list).ok(), Some(vec![status; 2]));
            if let ClaimStatus::Held(token) = status {
                assert!(token <= FencingToken::MAX);
            }
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Protocol);
            assert!(error.to_string().len() <= LONGEST_ERROR, "{error}");
        }
    }
    match inspect::state(&answer) {
        Ok(state) => {
            assert!(state.holders.iter().all(|holder| holder.token.is_some()));
            assert!(state.holders.is_sorted_by_key(|holder| holder.token));
            assert!(state.waiters.iter().all(|waiter| waiter.token.is_none()));
            for claim in state.holders.iter().chain(&state.waiters) {
                let (weight, capacity) = (claim.mode.weight(), claim.mode.capacity());
                assert!(weight >= 1 && weight <= capacity, "{weight} of {capacity}");
            }
        }
        Err(error) => assert!(error.to_string().len() <= LONGEST_ERROR, "{error}"),
    }
    if let Ok(answers) = reply::statuses(&answer) {
        assert!(matches!(&answer, Value::Array(all) if all.len() == answers.len()));
    }
    if let Some((_, gone)) = reply::renewed_exclusive(&answer) {
        assert!(matches!(&answer, Value::Array(all) if all.len() == gone.len() + 1));
    }
    let _ = (reply::time_of(&answer), reply::micros(&answer), won(&answer));
    let _ = reply::scanned(&answer);
}

/// A message of a grant: an accepted one is equal to itself when it is read again.
pub fn message(data: &[u8]) {
    if let Some((claim, token, at)) = waiters::read(data) {
        let text = format!("{claim} {token} {at}");
        assert_eq!(waiters::read(text.as_bytes()), Some((claim, token, at)));
        assert!(data.starts_with(claim.to_string().as_bytes()));
    }
}

/// The answer to `INFO`: no time derived from it is later than its arrival.
pub fn info(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let received = Instant::from_nanos(1 << 40);
    let always = [("appendfsync", "always"), ("no-appendfsync-on-rewrite", "no")];
    let always = always.map(|(name, value)| (name.to_owned(), value.to_owned()));
    for settings in [HashMap::new(), HashMap::from(always)] {
        let server_info = ServerInfo::read(&text, &settings, received);
        let server_info =
            server_info.with_time(Some(u64::MAX - 1), received).with_mark(Some(&text));
        for wants_cluster in [false, true] {
            if let Err(error) = server_info.check(wants_cluster, "redis://host") {
                assert!(error.to_string().len() <= LONGEST_ERROR, "{error}");
            }
        }
        let guard = Duration::from_secs(30);
        assert!(server_info.time_at(received.saturating_add(guard)) >= u64::MAX - 1);
        assert!(!server_info.keeps_grants(Duration::ZERO) || !settings.is_empty());
        let _ = (server_info.check_replicas(), server_info.check_guard(guard));
    }
}

/// The addresses in answers of sentinels and of cluster nodes.
pub fn topology(data: &[u8]) {
    let half = data.len() / 2;
    if let Some(named) = named(&value(&data[..half]), &value(&data[half..])) {
        assert!(named.address.contains(':'), "{named:?}");
    }
    let from = "from:6379";
    if let Some(map) = Map::read(&value(data), from) {
        let buckets = usize::try_from(BUCKETS).unwrap_or(usize::MAX);
        assert!(map.masters().iter().all(|master| master.contains(':')));
        assert!((0..buckets).filter_map(|at| map.master(at)).all(|at| map.masters().contains(at)));
        assert_eq!(map.master(buckets), None);
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Some(address) = address(text, from) {
        let port = text.rsplit_once(':').map(|(_, port)| port);
        assert_eq!(address.rsplit_once(':').map(|(_, port)| port), port);
        assert!(!address.starts_with(':') && !address.starts_with("?:"), "{address}");
    }
}

/// An error of the server, as the text of its answer: it gets an explanation, and does not redirect
/// a command to an invalid address.
pub fn error(data: &[u8]) {
    let line: Vec<u8> = data.iter().copied().filter(|byte| !b"\r\n".contains(byte)).collect();
    let answer = [b"-", line.as_slice(), b"\r\n"].concat();
    let Ok(Err(error)) = redis::parse_redis_value(&answer).map(Value::extract_error) else {
        return;
    };
    let route = Route { at: "from:6379".into(), asking: false };
    if let Some(next) = route.next(&error) {
        assert!(next.at.contains(':') && !next.at.starts_with(':'), "{}", next.at);
    }
    let _ = remedy_of(&error);
    let refused = matches!(error.kind(), redis::ErrorKind::Server(_) | redis::ErrorKind::Extension);
    // A script that fails half-way may have written.
    let in_script = IN_SCRIPT.into_iter().any(|text| error.to_string().contains(text));
    let explained = explain(error);
    assert!(!refused || in_script || explained.certainty() == Certainty::NotApplied, "{explained}");
    assert!(!explained.to_string().is_empty());
}

/// Returns an answer: parsed from the bytes as a server sends them, or made from bytes that are not
/// an answer.
fn value(data: &[u8]) -> Value {
    redis::parse_redis_value(data).unwrap_or_else(|_| made(&mut data.iter(), 3))
}

/// Returns an answer that looks like a script's.
fn made<'a>(bytes: &mut impl Iterator<Item = &'a u8>, depth: u8) -> Value {
    let (kind, size) = (next(bytes), next(bytes));
    let wide = |high: u8, low: u8| i64::from_be_bytes([high, low, low, low, low, low, low, low]);
    match kind % 8 {
        0 => Value::Nil,
        1 => Value::Okay,
        2 => Value::Int(wide(size, next(bytes))),
        3 => Value::Int(i64::from(size)),
        4 => Value::BulkString((0..size % 8).map(|_| next(bytes)).collect()),
        5 => Value::BulkString(format!("{:032x}", u128::from(size)).into_bytes()),
        _ if depth == 0 => Value::Int(i64::from(size)),
        6 => Value::Array((0..size % 8).map(|_| made(bytes, depth - 1)).collect()),
        _ => {
            let mut pair = |_| (made(bytes, depth - 1), made(bytes, depth - 1));
            Value::Map((0..size % 4).map(&mut pair).collect())
        }
    }
}

fn next<'a>(bytes: &mut impl Iterator<Item = &'a u8>) -> u8 {
    bytes.next().copied().unwrap_or_default()
}
