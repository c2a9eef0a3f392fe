//! Which master has which slots: what a node answers to `CLUSTER SLOTS`.

use std::collections::BTreeSet;

use redis::{Value, cluster_routing::Slot};

use crate::keys::Bucket;

/// Which master has which slots, as one node sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Map(Vec<Range>);

/// A range of slots.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Range {
    first: u16,
    last: u16,
    master: String,
    replicas: usize,
}

impl Map {
    /// Reads the answer of the node at this address.
    pub(super) fn read(answer: &Value, from: &str) -> Option<Self> {
        let Value::Array(ranges) = answer else { return None };
        let mut slots = Vec::with_capacity(ranges.len());
        for range in ranges {
            let Value::Array(parts) = range else { return None };
            let [Value::Int(first), Value::Int(last), Value::Array(master), replicas @ ..] =
                parts.as_slice()
            else {
                return None;
            };
            let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
            if let Some(master) = address(master, from) {
                slots.push(Range { first, last, master, replicas: replicas.len() });
            }
        }
        slots.sort();
        Some(Self(slots))
    }

    /// The master of a bucket.
    pub(super) fn master(&self, bucket: Bucket) -> Option<&str> {
        let slot = number(Slot::for_key(bucket.number().to_string()));
        let found = self.0.iter().find(|range| (range.first..=range.last).contains(&slot));
        found.map(|range| range.master.as_str())
    }

    /// All masters that have slots.
    pub(super) fn masters(&self) -> BTreeSet<String> {
        self.0.iter().map(|range| range.master.clone()).collect()
    }

    /// How many replicas a master has, at the most.
    pub(super) fn replicas(&self) -> usize {
        self.0.iter().map(|range| range.replicas).max().unwrap_or(0)
    }
}

/// The driver knows the number of a slot and does not tell.
fn number(slot: Slot) -> u16 {
    (0..).find(|number| Slot::new(*number).is_none_or(|other| other == slot)).unwrap_or_default()
}

/// Reads `{host, port, ...}`. A node that does not know how it is reached leaves the host empty.
fn address(node: &[Value], from: &str) -> Option<String> {
    let [host, Value::Int(port), ..] = node else { return None };
    let host = match host {
        Value::BulkString(host) => String::from_utf8_lossy(host).into_owned(),
        Value::Nil => String::new(),
        _ => return None,
    };
    match host.as_str() {
        "?" => None,
        "" => Some(format!("{}:{port}", from.rsplit_once(':')?.0)),
        host if host.contains(':') => Some(format!("[{host}]:{port}")),
        host => Some(format!("{host}:{port}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn range(first: i64, last: i64, host: Value, port: i64) -> Value {
        let node = |host, port| Value::Array(vec![host, Value::Int(port), text("id")]);
        let replica = node(text("replica"), 1);
        Value::Array(vec![Value::Int(first), Value::Int(last), node(host, port), replica])
    }

    #[test]
    fn a_bucket_is_where_the_server_puts_its_hash_tag() {
        // CLUSTER KEYSLOT {0} is 13907.
        assert_eq!(number(Slot::for_key(Bucket::ANY.number().to_string())), 13_907);
        let answer =
            Value::Array(vec![range(13_908, 16_383, text("b"), 2), range(0, 13_907, text("a"), 1)]);
        let map = Map::read(&answer, "x:9").unwrap();
        assert_eq!(map.master(Bucket::ANY), Some("a:1"));
        assert_eq!(map.masters().into_iter().collect::<Vec<_>>(), ["a:1", "b:2"]);
        assert_eq!(map.replicas(), 1);
    }

    #[test]
    fn a_host_that_is_not_known_is_that_of_the_node_that_answers() {
        for (host, known) in [
            (text(""), Some("[::1]:7")),
            (Value::Nil, Some("[::1]:7")),
            (text("?"), None),
            (text("fe80::1"), Some("[fe80::1]:7")),
        ] {
            let answer = Value::Array(vec![range(0, 16_383, host, 7)]);
            let map = Map::read(&answer, "[::1]:9").unwrap();
            assert_eq!(map.master(Bucket::ANY), known);
        }
    }

    #[test]
    fn what_is_no_map_is_none() {
        assert_eq!(Map::read(&Value::Okay, "x:9"), None);
        assert_eq!(Map::read(&Value::Array(vec![Value::Int(1)]), "x:9"), None);
    }
}
