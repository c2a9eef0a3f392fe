//! The slots of a cluster, as its nodes know them. Only the slots of dlock's buckets have keys.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use super::{
    data::Data,
    resp::{Bytes, Value},
};

/// The number of dlock's hash tags.
pub(crate) const BUCKETS: usize = 64;

/// The slots of all nodes.
#[derive(Debug)]
pub(crate) struct Slots {
    pub(crate) addresses: &'static [&'static str],
    /// For each node, the owner of each bucket as far as it knows.
    pub(crate) owners: Vec<Vec<usize>>,
    /// The buckets that move, each with its old owner and the new one.
    pub(crate) moving: BTreeMap<usize, (usize, usize)>,
}

impl Slots {
    /// The nodes have the buckets in turn.
    pub(crate) fn of(addresses: &'static [&'static str]) -> Self {
        let owners: Vec<usize> = (0..BUCKETS).map(|bucket| bucket % addresses.len()).collect();
        Self { addresses, owners: vec![owners; addresses.len()], moving: BTreeMap::new() }
    }

    /// `CLUSTER SLOTS`, as a node answers it.
    pub(super) fn map(&self, at: usize) -> Value {
        let range = |(bucket, owner): (usize, &usize)| {
            let (host, port) = self.addresses[*owner].split_once(':').unwrap_or(("", ""));
            let port = Value::Integer(port.parse().unwrap_or(0));
            let node = vec![Value::text(host), port, Value::text(format!("{owner:040}"))];
            let slot = Value::Integer(i64::from(slot(bucket)));
            Value::Array(vec![slot.clone(), slot, Value::Array(node)])
        };
        Value::Array(self.owners[at].iter().enumerate().map(range).collect())
    }

    /// Returns why a node does not execute a command of a client, if it does not.
    pub(super) fn refusal(
        &self,
        at: usize,
        words: &[Bytes],
        is_asking: bool,
        data: &mut Data,
    ) -> Option<Value> {
        let name = words[0].to_ascii_uppercase();
        let keys = match name.as_slice() {
            b"EVAL" | b"EVALSHA" => {
                let count = str::from_utf8(words.get(2)?).ok()?.parse::<usize>().ok()?;
                words.get(3..3 + count)?
            }
            b"SSUBSCRIBE" | b"EXISTS" => &words[1..],
            b"GET" | b"SET" | b"XADD" => words.get(1..2)?,
            _ => return None,
        };
        let bucket = bucket_in(keys.first()?)?;
        let to = |verb: &str, node: usize| {
            Value::error(format!("{verb} {} {}", slot(bucket), self.addresses[node]))
        };
        let again = || Value::error("TRYAGAIN Multiple keys request during rehashing of slot");
        let missing = keys.iter().filter(|key| !data.has(key)).count();
        let (owner, moving) = (self.owners[at][bucket], self.moving.get(&bucket));
        match moving {
            Some((from, _)) if *from == at && name == b"SSUBSCRIBE" => None,
            Some((from, _)) if *from == at && owner == at && missing == 0 => None,
            Some((from, _)) if *from == at && owner == at && missing < keys.len() => Some(again()),
            Some((from, node)) if *from == at && owner == at => Some(to("ASK", *node)),
            Some((_, node)) if *node == at && owner != at && is_asking => {
                (keys.len() > 1 && missing > 0).then(again)
            }
            _ => (owner != at).then(|| to("MOVED", owner)),
        }
    }
}

/// A node, as a server knows itself.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) at: usize,
    pub(super) slots: Rc<RefCell<Slots>>,
    /// The connections whose next command may be for a slot that is moving to this node.
    pub(super) asking: BTreeSet<u64>,
}

/// Returns the bucket of a key or a channel, which is in its first braces.
pub(crate) fn bucket_in(name: &[u8]) -> Option<usize> {
    let text = str::from_utf8(name).ok()?;
    text.split_once('{')?.1.split_once('}')?.0.parse().ok().filter(|bucket| *bucket < BUCKETS)
}

/// Returns the slot of a bucket: CRC-16/XMODEM of its hash tag.
fn slot(bucket: usize) -> u16 {
    let shift = |crc: u16| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
    let tag = bucket.to_string();
    let crc = tag
        .bytes()
        .fold(0, |crc: u16, byte| (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| shift(crc)));
    crc % 16_384
}
