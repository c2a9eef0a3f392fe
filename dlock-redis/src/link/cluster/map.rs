//! The map from buckets to masters: a node's answer to `CLUSTER SLOTS`.
//!
//! A map is the view of one node at one time, and may be out of date. A wrong entry costs one
//! redirection, since the node that gets the command answers `MOVED`.

use std::{collections::BTreeSet, sync::Arc};

use redis::Value;

use crate::{config::with_port, keys::BUCKETS};

/// The master of each bucket, as one node sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Map {
    /// By the number of the bucket.
    masters: Vec<Option<Arc<str>>>,
    /// The largest number of replicas that a master has.
    pub(crate) replicas: usize,
}

impl Map {
    /// Reads the answer of the node at this address.
    pub(crate) fn read(answer: &Value, from: &str) -> Option<Self> {
        let Value::Array(ranges) = answer else { return None };
        // Only the slots of dlock's buckets are kept, not all 16,384.
        let slots: Vec<u16> = (0..BUCKETS).map(|bucket| slot(&bucket.to_string())).collect();
        let mut map = Self { masters: vec![None; slots.len()], replicas: 0 };
        for range in ranges {
            let Value::Array(parts) = range else { return None };
            let [Value::Int(first), Value::Int(last), Value::Array(master), replicas @ ..] =
                parts.as_slice()
            else {
                return None;
            };
            let range = u16::try_from(*first).ok()?..=u16::try_from(*last).ok()?;
            let master: Option<Arc<str>> = node(master, from).map(Arc::from);
            for (bucket, _) in slots.iter().enumerate().filter(|(_, slot)| range.contains(slot)) {
                map.masters[bucket] = master.clone();
            }
            map.replicas = map.replicas.max(replicas.len());
        }
        Some(map)
    }

    /// Returns the master of a bucket.
    pub(crate) fn master(&self, bucket: usize) -> Option<&Arc<str>> {
        self.masters.get(bucket)?.as_ref()
    }

    /// Returns all masters that have buckets.
    pub(crate) fn masters(&self) -> BTreeSet<Arc<str>> {
        self.masters.iter().flatten().cloned().collect()
    }
}

/// Reads `{host, port, ...}`.
fn node(parts: &[Value], from: &str) -> Option<String> {
    match parts {
        [Value::BulkString(host), Value::Int(port), ..] => {
            address(&format!("{}:{port}", String::from_utf8_lossy(host)), from)
        }
        [Value::Nil, Value::Int(port), ..] => address(&format!(":{port}"), from),
        _ => None,
    }
}

/// Parses an address in a node's answer. The host is empty if the node does not know its own
/// address, and `?` if it does not know the address of another node.
pub(crate) fn address(text: &str, from: &str) -> Option<String> {
    match text.rsplit_once(':')? {
        ("?", _) => None,
        ("", port) => Some(format!("{}:{port}", from.rsplit_once(':')?.0)),
        (host, port) => Some(with_port(host, port)),
    }
}

/// Returns the slot of a hash tag: CRC-16/XMODEM
/// (<https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>).
fn slot(tag: &str) -> u16 {
    let shift = |crc: u16| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
    let crc = tag
        .bytes()
        .fold(0, |crc: u16, byte| (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| shift(crc)));
    crc % 16_384
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
    fn a_bucket_has_the_slot_of_its_hash_tag() {
        // The answers of CLUSTER KEYSLOT.
        assert_eq!(["0", "4", "123456789"].map(slot), [13_907, 14_039, 12_739]);
        let answer =
            Value::Array(vec![range(13_908, 16_383, text("b"), 2), range(0, 13_907, text("a"), 1)]);
        let map = Map::read(&answer, "x:9").unwrap();
        let masters = [0, 4, 64].map(|bucket| map.master(bucket).map(|at| &**at));
        assert_eq!(masters, [Some("a:1"), Some("b:2"), None]);
        assert_eq!(map.masters(), ["a:1", "b:2"].map(Arc::<str>::from).into());
        assert_eq!(map.replicas, 1);
    }

    #[test]
    fn an_unknown_host_is_that_of_the_answering_node() {
        for (host, known) in [
            (text(""), Some("[::1]:7")),
            (Value::Nil, Some("[::1]:7")),
            (text("?"), None),
            (text("fe80::1"), Some("[fe80::1]:7")),
        ] {
            let answer = Value::Array(vec![range(0, 16_383, host, 7)]);
            let map = Map::read(&answer, "[::1]:9").unwrap();
            assert_eq!(map.master(5).map(|at| &**at), known);
        }
    }

    #[test]
    fn an_answer_without_slots_is_no_map() {
        assert_eq!(Map::read(&Value::Okay, "x:9"), None);
        assert_eq!(Map::read(&Value::Array(vec![Value::Int(1)]), "x:9"), None);
    }
}
