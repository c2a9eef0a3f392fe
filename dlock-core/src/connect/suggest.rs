//! Guesses the intended scheme, for the message about an unknown one.
//!
//! A URL may contain a password anywhere, so a guess shows only the scheme.

use std::net::Ipv6Addr;

/// The usual ports of servers.
const PORTS: [(&str, &str); 7] = [
    ("6379", "redis"),
    ("26379", "redis+sentinel"),
    ("5432", "postgres"),
    ("6432", "postgres"),
    ("3306", "mysql"),
    ("2181", "zk"),
    ("2379", "etcd"),
];

/// Other names of the stores.
const NAMES: [(&str, &str); 14] = [
    ("valkey", "redis"),
    ("valkeys", "rediss"),
    ("sentinel", "redis+sentinel"),
    ("cluster", "redis+cluster"),
    ("quorum", "redis+quorum"),
    ("redis+socket", "redis+unix"),
    ("unix", "redis+unix"),
    ("pg", "postgres"),
    ("pgsql", "postgres"),
    ("psql", "postgres"),
    ("maria", "mariadb"),
    ("zookeeper", "zk"),
    ("zookeepers", "zks"),
    ("mem", "memory"),
];

/// Returns whether `scheme:address` is in fact a host with its port: `localhost:6379/0`.
pub(crate) fn is_host(scheme: &str, address: &str) -> bool {
    !scheme.contains('+') && !port(address).is_empty()
}

/// Returns the port if a text begins with a port after a host that can't be a scheme:
/// `127.0.0.1:6379`, `[::1]:6379`, `my_cache:6379`.
pub(crate) fn port_behind_a_host(text: &str) -> Option<&str> {
    let rest = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            host.parse::<Ipv6Addr>().ok()?;
            rest.strip_prefix(':')?
        }
        None => {
            let (host, rest) = text.split_once(':')?;
            let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            if host.is_empty() || !host.bytes().all(is_host) {
                return None;
            }
            rest
        }
    };
    Some(port(rest)).filter(|port| !port.is_empty())
}

/// Returns the port at the beginning of the text after a host; empty if it has none. Before an `@`
/// there is a user and not a host, and what looks like a port is a password.
pub(crate) fn port(address: &str) -> &str {
    if address.contains('@') {
        return "";
    }
    let end = address.find(['/', '?', ',']).unwrap_or(address.len());
    let port = &address[..end];
    let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
    if is_port && port.bytes().all(|byte| byte.is_ascii_digit()) { port } else { "" }
}

/// Returns the scheme of the servers that usually have this port.
pub(crate) fn scheme_of_port(port: &str) -> Option<&'static str> {
    PORTS.iter().find(|(known, _)| *known == port).map(|(_, scheme)| *scheme)
}

/// Returns the text to write before a host with this port.
pub(crate) fn before_a_host(port: &str) -> String {
    match scheme_of_port(port) {
        Some(scheme) => format!("did you mean {scheme}://HOST:{port}?"),
        None => "write the store's scheme before it, such as redis://HOST:6379".to_owned(),
    }
}

/// Returns the scheme among these that was probably intended.
pub(crate) fn scheme<'a>(
    written: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let written: String = written.chars().take(40).collect();
    let mut known: Vec<&str> = known.into_iter().collect();
    known.sort_unstable();
    let named = NAMES.iter().find(|(name, _)| *name == written);
    if let Some(scheme) = named.and_then(|(_, scheme)| known.iter().find(|known| *known == scheme))
    {
        return Some(scheme);
    }
    // At most a third of the letters may be wrong; otherwise short schemes would all match.
    let near = known.into_iter().map(|scheme| (distance(&written, scheme), scheme));
    near.filter(|(distance, scheme)| 3 * distance <= scheme.len()).min().map(|(_, scheme)| scheme)
}

/// Returns the number of letters to insert, delete, change, or swap with the next letter.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut next = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let changed = last[j] + usize::from(a != b);
            let mut least = changed.min(last[j + 1] + 1).min(next[j] + 1);
            if i > 0 && j > 0 && *a == other[j - 1] && one[i - 1] == *b {
                least = least.min(before[j - 1] + 1);
            }
            next.push(least);
        }
        before = std::mem::replace(&mut last, next);
    }
    last[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_letters_that_are_exchanged_are_one_mistake() {
        for (one, other, expected) in [
            ("redis", "redis", 0),
            ("redsi", "redis", 1),
            ("reddis", "redis", 1),
            ("rdis", "redis", 1),
            ("radis", "redis", 1),
            ("", "redis", 5),
            ("redis", "", 5),
            ("etcd", "zk", 4),
        ] {
            assert_eq!(distance(one, other), expected, "{one} {other}");
        }
    }

    #[test]
    fn only_a_number_is_a_port() {
        assert_eq!(port("6379/0"), "6379");
        for text in ["", "/", "//h", "0", "65536", "+80", "80a", "a", "80@h", "80/a@h"] {
            assert_eq!(port(text), "", "{text}");
        }
    }
}
