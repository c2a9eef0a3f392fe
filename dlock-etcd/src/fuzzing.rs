//! The properties of all parsers of this crate, for arbitrary bytes. Each parser has one function,
//! which panics if a property does not hold.
//!
//! `proof/fuzz/` runs them for long, and the tests below run them briefly. A normal build does not
//! contain this module.

use dlock_core::{BackendUrl, LockName, Mode};
use percent_encoding::percent_decode_str;

use crate::{
    EtcdConfig,
    client::{Bytes, KeyValue},
    key::{Entry, Keys, Kind, end, past},
    queue::{Behind, Node, Standing, holding, is_nested, range, standing_among},
    record::Record,
};

/// The longest text of an error, whatever input it describes, because errors go to logs.
const LONGEST_ERROR: usize = 1200;

/// The passwords in the URLs here.
const SECRET: &str = "hunter2";

/// A URL: an accepted one obeys the bounds.
pub fn url(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let config = match EtcdConfig::from_url(text) {
        Ok(config) => config,
        Err(error) => return assert!(error.to_string().len() <= LONGEST_ERROR, "{error}"),
    };
    assert!(!config.hosts.is_empty());
    for host in &config.hosts {
        assert_eq!(BackendUrl::with_port(host, 1).as_ref(), Ok(host));
        assert!(!host.contains([',', '@', '/']));
    }
    assert!(!config.root.ends_with('/') && !config.root.chars().any(char::is_control));
    assert!((2..=300).contains(&config.session_timeout.as_secs()));
    if let Some((user, password)) = &config.access.login {
        assert!(!user.is_empty() && !password.is_empty());
        let given = text.split_once("//").and_then(|(_, rest)| rest.split_once(':'));
        let given = given.map(|(user, _)| percent_decode_str(user).decode_utf8_lossy());
        assert_eq!(given.as_deref(), Some(user.as_str()), "the server reads another user");
    }
}

/// A URL with a password of any characters: no output shows the password.
pub fn url_password(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if text.contains(SECRET) {
        return;
    }
    let mut pieces = text.splitn(3, '\n');
    let mut piece = || pieces.next().unwrap_or_default();
    let url = format!("etcd://user:{}{SECRET}{}@host{}", piece(), piece(), piece());
    let shown = match EtcdConfig::from_url(&url) {
        Ok(config) => format!("{config:?} {:?} {}", config.access, config.store()),
        Err(error) => format!("{error} {error:?}"),
    };
    assert!(!shown.contains(SECRET), "{url} shows as {shown}");
}

/// A key below the root: the name that is read from it gives its prefix again, and so does each
/// claim. The range of a lock contains its keys, and no key of another lock.
pub fn key(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let keys = Keys::below("/dlock");
    let key = format!("/dlock/{text}");
    if let Some(name) = keys.name_of(&key) {
        let prefix = keys.prefix(&name);
        let rest = key.strip_prefix(&prefix).unwrap_or_else(|| panic!("{key}: {prefix}"));
        assert!(*prefix <= *key && *key < *end(&prefix), "{key} is in the range of its lock");
        let (from, to) = keys.starting_with(name.as_str());
        assert!(*from <= *key.as_bytes() && *key.as_bytes() < *to, "{key} is listed");
        match Entry::parse(rest) {
            Entry::Ours(kind, slot) => assert_eq!(kind.key(&prefix, slot), key),
            Entry::Go(claim) => assert_eq!(format!("{prefix}{:x}", claim.to_bits()), key),
            Entry::Newer(_) => assert!(rest.starts_with('n')),
            Entry::Nested => panic!("{key} is of another root"),
            Entry::Foreign => {}
        }
    }
    let next = past(key.as_bytes());
    assert!(*key.as_bytes() < *next && next.len() == key.len() + 1);
    if let Ok(name) = LockName::new(text) {
        let prefix = keys.prefix(&name);
        let segment = prefix.strip_prefix("/dlock/").and_then(|rest| rest.strip_suffix('/'));
        assert!(segment.is_some_and(|it| !it.is_empty() && !it.contains('/')), "{prefix}");
        assert_ne!(segment, Some("%session"), "the sessions have it");
        assert_eq!(keys.name_of(&format!("{prefix}x")), Some(name));
    }
}

/// A record: it is equal to itself when it is read again.
pub fn record(data: &[u8]) {
    if let Some(read) = Record::parse(data) {
        assert_eq!(Record::parse(read.text().as_bytes()), Some(read));
    }
}

/// The keys of a lock in the order of their creation, one on each line as `key value`: a claim holds
/// the lock if and only if it is in the longest prefix of the queue that fits, and else it watches
/// what is before it.
pub fn queue(data: &[u8]) {
    const PREFIX: &str = "/dlock/x/";
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut kvs: Vec<KeyValue> = Vec::new();
    for (line, created) in text.lines().zip(1..) {
        let (rest, value) = line.split_once(' ').unwrap_or((line, ""));
        let key = Bytes::from(format!("{PREFIX}{rest}"));
        if kvs.iter().all(|kv| kv.key != key) {
            let value = Bytes::copy_from_slice(value.as_bytes());
            kvs.push(KeyValue { key, value, create_revision: created, ..KeyValue::default() });
        }
    }
    let own = kvs.iter().filter(|kv| !is_nested(PREFIX, &kv.key));
    let nodes: Vec<_> = own.map_while(|kv| Node::read(PREFIX, kv.clone()).ok()).collect();
    let modes: Vec<_> = nodes.iter().map_while(|node| node.mode().ok()).collect();
    for (at, mode) in modes.iter().enumerate() {
        let node = &nodes[at];
        if (at > 0 && node.kind == Kind::Writer && *mode == Mode::Shared)
            || modes[..at].iter().any(|ahead| ahead.capacity() != mode.capacity())
        {
            // A writer becomes a reader only when it is first; with two capacities, no rule holds.
            return;
        }
        let (from, to) = range(PREFIX, *mode);
        let read = kvs.iter().filter(|kv| from <= kv.key && kv.key < to).cloned().collect();
        let found = standing_among(PREFIX, *mode, node.created, read);
        let found = found.unwrap_or_else(|error| panic!("{error}"));
        let ahead = |key: &Bytes| nodes[..at].iter().any(|node| node.key == *key);
        let is_held = holding(modes[..=at].iter().copied()) > at;
        match found {
            Standing::Held { .. } => assert!(is_held, "{node:?} holds nothing"),
            Standing::Behind(Behind::Last(key) | Behind::End(key) | Behind::Change(key)) => {
                assert!(!is_held && ahead(&key), "{node:?} waits for {key:?}");
            }
            Standing::Behind(Behind::Permits) => assert!(!is_held && node.kind == Kind::Permits),
            other => panic!("{node:?} is there, and the only kind: {other:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Short runs of the properties.

    use dlock_testkit::inputs::try_on;

    const URL: &[&str] = &[
        "etcd",
        "etcds",
        ":",
        "//",
        "/",
        "?",
        "&",
        "=",
        "@",
        "#",
        "%3A",
        "%2F",
        "%FF",
        "[::1]",
        "host",
        "host:2379",
        ",",
        "user:pass@",
        "etcd://host",
        "etcd://a:b@host",
        "root",
        "dlock.root=",
        "dlock.session_timeout=",
        "15s",
        "dlock.tls_ca=x",
        "..",
        "\n",
        "\u{e000}",
    ];

    const KEY: &[&str] = &[
        "/",
        "%",
        "%25",
        "%2F",
        "%41",
        "%session",
        "%vote",
        "orders",
        "a/",
        "é",
        "r",
        "p",
        "n2-",
        "n",
        "-",
        "694d7d2a5c1f0d06",
        "7b",
        "0",
        "00000000000000000000000000000001",
        "cfa6e75c1ef24d4e8db44c1f0a4d3e11",
    ];

    const LINES: &[&str] = &[
        "cfa6e75c1ef24d4e8db44c1f0a4d3e11 x 30000\n",
        "cfa6e75c1ef24d4e8db44c1f0a4d3e11 s 30000 note\n",
        "cfa6e75c1ef24d4e8db44c1f0a4d3e12 x 1\n",
        "rcfa6e75c1ef24d4e8db44c1f0a4d3e13 s 1\n",
        "rcfa6e75c1ef24d4e8db44c1f0a4d3e14 s 1\n",
        "pcfa6e75c1ef24d4e8db44c1f0a4d3e15 1/3 1\n",
        "pcfa6e75c1ef24d4e8db44c1f0a4d3e16 2/3 1\n",
        "pcfa6e75c1ef24d4e8db44c1f0a4d3e17 3/3 1\n",
        "pcfa6e75c1ef24d4e8db44c1f0a4d3e18 1/3 1\n",
        "694d7d2a5c1f0d06\n",
        "7b\n",
        "n9-x\n",
        "\n",
        " ",
        "r",
        "p",
        "2/3 1",
    ];

    #[test]
    fn urls() {
        try_on(URL, super::url);
    }

    #[test]
    fn urls_hide_passwords() {
        try_on(URL, super::url_password);
    }

    #[test]
    fn keys() {
        try_on(KEY, super::key);
    }

    #[test]
    fn records() {
        const CLAIM: &str = " 30000 0f6b2c19a4e35d7810c9b8a7f6e5d4c3";
        let pieces =
            &["x", "s", "2/5", " ", "30000", CLAIM, "\u{1}2", "\u{1}9", "web-3", "+", "é", "\n"];
        try_on(pieces, super::record);
    }

    #[test]
    fn queues() {
        try_on(LINES, super::queue);
    }
}
