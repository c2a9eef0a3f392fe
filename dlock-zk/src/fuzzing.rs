//! The properties of all parsers of this crate, for arbitrary bytes. Each parser has one function,
//! which panics if a property does not hold.
//!
//! `proof/fuzz/` runs them for long, and the tests below run them briefly. A normal build does not
//! contain this module.

use std::collections::BTreeSet;

use dlock_core::{BackendUrl, ClaimId, LockName, Mode};
use percent_encoding::percent_decode_str;
use zookeeper_client::Permission;

use crate::{
    ZkConfig,
    acl::Acl,
    node::{Node, child_since, name_of, segment},
    queue::{Queue, Standing, Watch},
    record::Record,
};

/// The longest text of an error, whatever input it describes, because errors go to logs.
const LONGEST_ERROR: usize = 1200;

/// The passwords in the URLs here.
const SECRET: &str = "hunter2";

/// A URL: an accepted one obeys the bounds, and the driver reads it in the same way.
pub fn url(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let config = match ZkConfig::from_url(text) {
        Ok(config) => config,
        Err(error) => return assert!(error.to_string().len() <= LONGEST_ERROR, "{error}"),
    };
    assert!(!config.hosts.is_empty());
    for host in &config.hosts {
        assert_eq!(BackendUrl::with_port(host, 1).as_ref(), Ok(host));
        assert!(!host.contains([',', '@']));
    }
    for path in [&config.chroot, &config.root] {
        assert!(path.is_empty() || path.starts_with('/') && !path.ends_with('/'), "{path}");
        assert!(!path.contains("//") && !path.chars().any(char::is_control), "{path:?}");
        assert!(!path.split('/').any(|part| part == "." || part == ".."), "{path}");
    }
    assert!((1..=3600).contains(&config.session_timeout.as_secs()));
    // The part before the first slash contains the servers, for the driver as well.
    let cluster = config.cluster(&config.hosts);
    let (hosts, chroot) = cluster.split_at(cluster.find('/').unwrap_or(cluster.len()));
    assert!(hosts.split(',').eq(&config.hosts) && chroot == config.chroot);
    if let Some(login) = &config.login {
        let (user, password) = login.split_once(':').unwrap_or_else(|| panic!("{login}"));
        assert!(!user.is_empty() && !password.is_empty());
        let given = text.split_once("//").and_then(|(_, rest)| rest.split_once(':'));
        let given = given.map(|(user, _)| percent_decode_str(user).decode_utf8_lossy());
        assert_eq!(given.as_deref(), Some(user), "the server reads another user");
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
    let url = format!("zk://user:{}{SECRET}{}@host{}", piece(), piece(), piece());
    let shown = match ZkConfig::from_url(&url) {
        Ok(config) => format!("{config:?} {}", config.store()),
        Err(error) => format!("{error} {error:?}"),
    };
    assert!(!shown.contains(SECRET), "{url} shows as {shown}");
}

/// An ACL: if it is written out again, it is equal to itself.
pub fn acl(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match text.parse() {
        Ok(Acl::Entries(entries)) => {
            assert!(!entries.is_empty());
            let text: Vec<String> = entries
                .iter()
                .map(|entry| {
                    let rights = rights(entry.permission());
                    assert!(!entry.scheme().is_empty() && !rights.is_empty());
                    format!("{}:{}:{rights}", entry.scheme(), entry.id())
                })
                .collect();
            assert_eq!(text.join(",").parse().ok(), Some(Acl::Entries(entries)));
        }
        Ok(word) => assert_eq!(word == Acl::Open, text == "open"),
        Err(error) => assert!(error.to_string().len() <= LONGEST_ERROR, "{error}"),
    }
}

/// A lock's name as a segment of a path: ZooKeeper accepts it, and the name can be read from it, so
/// that two names never share a segment.
pub fn segments(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(name) = LockName::new(text) else { return };
    let segment = segment(&name);
    assert!(segment.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/'));
    assert!(!matches!(&*segment, "." | ".." | "zookeeper"));
    assert!(!segment.starts_with("%session-"), "it is the node of a session");
    assert_eq!(percent_decode_str(&segment).decode_utf8().as_deref(), Ok(text));
    assert_eq!(name_of(&segment), Some(name));
}

/// A node's name: dlock reads every name that it writes. Each name that it reads has the written
/// form, except for the zeros before a number.
pub fn node(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data)
        && let Some(node) = Node::parse(text)
    {
        assert_eq!(node.child, text);
        assert!(node.mode.weight() > 0 && node.mode.weight() <= node.mode.capacity());
        let again = child_since(node.claim, node.mode, node.since);
        let again = format!("{again}{:010}", node.number);
        let again = Node::parse(&*again).unwrap_or_else(|| panic!("{text}"));
        assert_eq!(Node { child: text.to_owned(), ..again }, node);
    }
    let mut bytes = data.iter();
    let mut number = || (0..4).fold(0, |all, _| (all << 8) | u32::from(next(&mut bytes)));
    let claim = ClaimId::from_bits(u128::from(number()) << 96 | u128::from(number()));
    let (n, of, since) = (number() >> 8, number() >> 8, number());
    let (mode, since) = match Mode::permits(n, of) {
        Ok(permits) => (permits, (since % 2 == 0).then_some(i64::from(since))),
        Err(_) if n % 2 == 0 => (Mode::Shared, None),
        Err(_) => (Mode::Exclusive, None),
    };
    let counted = number().cast_signed();
    let child = format!("{}{counted:010}", child_since(claim, mode, since));
    let number = i64::from(counted);
    let node = Node { child: child.clone(), claim, mode, number, since };
    assert_eq!(Node::parse(child), Some(node));
}

/// A node's data: it is equal to itself when it is read again.
pub fn node_data(data: &[u8]) {
    if let Some(read) = Record::parse(data) {
        assert_eq!(Record::parse(read.text().as_bytes()), Some(read));
    }
}

/// The children of a directory, one on each line: the state of each claim, and the node that it
/// watches, obey the rule of the queue.
pub fn queue(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // A directory has each child once.
    let children: BTreeSet<&str> = text.lines().collect();
    let children: Vec<&str> = children.into_iter().collect();
    let queue = Queue::of(children.iter().copied());
    let in_order = queue.in_order();
    let nodes = queue.nodes();
    assert!(nodes.is_sorted_by_key(|node| node.number));
    assert!(!in_order || nodes.iter().all(|node| node.number >= 0));
    for child in &children {
        let listed = nodes.iter().any(|node| node.child == *child);
        assert_eq!(listed, Node::parse(*child).is_some());
        assert_eq!(listed, queue.standing(child) != Standing::Gone);
    }
    let Some(first) = nodes.first() else { return };
    assert!(matches!(queue.standing(&first.child), Standing::Held { .. }), "somebody is first");
    for (at, node) in nodes.iter().enumerate() {
        let ahead = |child: &str| nodes[..at].iter().any(|node| node.child == child);
        match queue.standing(&node.child) {
            Standing::Held { followed } => assert_eq!(followed, at + 1 < nodes.len()),
            Standing::Behind(
                Watch::Last(child)
                | Watch::Child(child)
                | Watch::Writer(child)
                | Watch::Waiter(child),
            ) => assert!(ahead(&child), "a waiter watches a node before it"),
            Standing::Behind(Watch::Children) => assert!(at > 0),
            Standing::Conflict(capacity) => assert_ne!(capacity, node.mode.capacity()),
            other => panic!("{} is there: {other:?}", node.child),
        }
        assert!(queue.of_claim(node.claim).any(|found| found == node));
    }
    let capacity = first.mode.capacity();
    if nodes.iter().all(|node| node.mode.capacity() == capacity) {
        let held = nodes.iter().map(|node| queue.standing(&node.child));
        let held: Vec<bool> = held.map(|it| matches!(it, Standing::Held { .. })).collect();
        let holding = Queue::holding(nodes.iter().map(|node| node.mode));
        assert!(held[..holding].iter().all(|held| *held));
        assert!(held[holding..].iter().all(|held| !*held));
        let weight: u64 = nodes[..holding].iter().map(|node| u64::from(node.mode.weight())).sum();
        assert!(weight <= u64::from(capacity));
    }
}

fn rights(permission: Permission) -> String {
    let all = [
        ('r', Permission::READ),
        ('w', Permission::WRITE),
        ('c', Permission::CREATE),
        ('d', Permission::DELETE),
        ('a', Permission::ADMIN),
    ];
    all.iter().filter(|(_, one)| permission.has(*one)).map(|(letter, _)| *letter).collect()
}

fn next<'a>(bytes: &mut impl Iterator<Item = &'a u8>) -> u8 {
    bytes.next().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    //! Short runs of the properties.

    use dlock_testkit::inputs::try_on;

    const URL: &[&str] = &[
        "zk",
        "zks",
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
        "host:2181",
        ",",
        "user:pass@",
        "zk://host",
        "zk://a:b@host",
        "chroot",
        "dlock.root=",
        "dlock.acl=open",
        "dlock.acl=creator",
        "dlock.session_timeout=",
        "15s",
        "dlock.tls_ca=x",
        "..",
        "zookeeper",
        "\n",
        "\u{e000}",
    ];

    const NODE: &[&str] = &[
        "_c_",
        "cfa6e75c-1ef2-4d4e-8db4-4c1f0a4d3e11",
        "00000000-0000-0000-0000-000000000001",
        "-",
        "lock-",
        "-lock-",
        "-read",
        "-permits-1-of-3",
        "-permits-2-of-3",
        "-since-",
        "permits-",
        "-of-",
        "0000000001",
        "0000000002",
        "-2147483648",
        "2147483647",
        "9223372036854775807",
        "\n",
        "_c_cfa6e75c-1ef2-4d4e-8db4-4c1f0a4d3e11-lock-0000000003",
        "_c_cfa6e75c-1ef2-4d4e-8db4-4c1f0a4d3e12-read-lock-0000000004\n",
        "_c_cfa6e75c-1ef2-4d4e-8db4-4c1f0a4d3e13-lock-0000000005\n",
        "_c_cfa6e75c-1ef2-4d4e-8db4-4c1f0a4d3e14-read-lock-0000000002\n",
        "_c_cfa6e75c-1ef2-4d4e-8db4-4c1f0a4d3e15-permits-1-of-3-lock-0000000001\n",
        "_c_cfa6e75c-1ef2-4d4e-8db4-4c1f0a4d3e16-permits-2-of-3-since-7-lock-0000000002\n",
        "_c_cfa6e75c-1ef2-4d4e-8db4-4c1f0a4d3e17-permits-3-of-3-lock-0000000003\n",
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
    fn acls() {
        let pieces =
            &["open", "creator", "world:anyone:r", "digest:u:h", ":", ",", "rwcda", "r", "x"];
        try_on(pieces, super::acl);
    }

    #[test]
    fn segments() {
        try_on(
            &[".", "..", "zookeeper", "/", "%", "2E", "%session-", "é", "a", "+"],
            super::segments,
        );
    }

    #[test]
    fn nodes() {
        try_on(NODE, super::node);
    }

    #[test]
    fn contents() {
        let pieces = &[
            "lease=",
            "30000",
            "ms",
            " shared",
            " granted",
            " ",
            "lease=1ms",
            " note=",
            "\u{1}2",
            "+",
            "é",
        ];
        try_on(pieces, super::node_data);
    }

    #[test]
    fn queues() {
        try_on(NODE, super::queue);
    }
}
