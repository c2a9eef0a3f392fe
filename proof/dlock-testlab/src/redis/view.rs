//! One node's view of a cluster.

use super::RedisServer;
use crate::{Stop, Verdict, wait::soon};

/// One node's view of a cluster: its answer to `CLUSTER NODES`.
#[derive(Debug)]
pub(super) struct View {
    nodes: Vec<Node>,
}

#[derive(Debug)]
struct Node {
    id: String,
    address: String,
    flags: Vec<String>,
    master: String,
    epoch: u64,
    slots: Vec<(u16, u16)>,
}

impl View {
    pub(super) async fn of(node: &RedisServer) -> Result<Self, Stop> {
        let reply = soon(node.command(&["CLUSTER", "NODES"])).await?;
        Self::parse(&reply.ok()?.text()?)
    }

    fn parse(text: &str) -> Result<Self, Stop> {
        Ok(Self { nodes: text.lines().map(Node::parse).collect::<Result<_, _>>()? })
    }

    /// Checks that `count` nodes are known and that no introduction is still in progress.
    pub(super) fn knows(&self, count: usize) -> Verdict {
        let known = self.nodes.iter().filter(|node| !node.is("handshake")).count();
        match known == count && self.nodes.len() == count {
            true => Ok(()),
            false => Err(Stop::failed(format!("a node knows {known} of {count}"))),
        }
    }

    /// Checks that this master has the slot in this view.
    pub(super) fn agrees(&self, slot: u16, master: &str) -> Verdict {
        let owner = self.nodes.iter().find(|node| node.has(slot));
        match owner.is_some_and(|node| node.address == master) {
            true => Ok(()),
            false => Err(Stop::failed(format!("slot {slot} is not at {master} but at {owner:?}"))),
        }
    }

    /// Whether the node at this address is a master with slots in this view.
    pub(super) fn sees_master(&self, address: &str) -> bool {
        let node = self.nodes.iter().find(|node| node.address == address);
        node.is_some_and(|node| node.is("master") && !node.slots.is_empty())
    }

    /// Whether this node is the master of the slot in its own view.
    pub(super) fn serves(&self, slot: u16) -> bool {
        self.myself().is_some_and(|node| node.is("master") && node.has(slot))
    }

    /// Whether this node is a replica of the master at this address.
    pub(super) fn follows(&self, master: &str) -> bool {
        let master = self.nodes.iter().find(|node| node.address == master);
        let myself = self.myself().filter(|node| node.is("slave"));
        matches!((master, myself), (Some(master), Some(myself)) if myself.master == master.id)
    }

    pub(super) fn is_master(&self) -> bool {
        self.myself().is_some_and(|node| node.is("master"))
    }

    /// Returns the epoch of the last election of this node, or of its master.
    pub(super) fn epoch(&self) -> u64 {
        self.myself().map_or(0, |node| node.epoch)
    }

    fn myself(&self) -> Option<&Node> {
        self.nodes.iter().find(|node| node.is("myself"))
    }
}

impl Node {
    /// Reads `ID IP:PORT@BUS[,HOST] FLAGS MASTER PING PONG EPOCH LINK SLOT...`.
    fn parse(line: &str) -> Result<Self, Stop> {
        let words: Vec<&str> = line.split(' ').collect();
        let [id, address, flags, master, _, _, epoch, _, slots @ ..] = words.as_slice() else {
            return Err(Stop::failed(format!("not a node: {line:?}")));
        };
        // Entries in brackets are slots that are being moved.
        let slots = slots.iter().filter(|slots| !slots.starts_with('['));
        Ok(Self {
            id: (*id).to_owned(),
            address: address.split('@').next().unwrap_or_default().to_owned(),
            flags: flags.split(',').map(str::to_owned).collect(),
            master: (*master).to_owned(),
            epoch: epoch.parse()?,
            slots: slots.map(|slots| range(slots)).collect::<Result<_, _>>()?,
        })
    }

    fn is(&self, flag: &str) -> bool {
        self.flags.iter().any(|one| one == flag)
    }

    fn has(&self, slot: u16) -> bool {
        self.slots.iter().any(|&(first, last)| (first..=last).contains(&slot))
    }
}

fn range(slots: &str) -> Result<(u16, u16), Stop> {
    let (first, last) = slots.split_once('-').unwrap_or((slots, slots));
    Ok((first.parse()?, last.parse()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_shows_the_master_of_a_slot_and_the_replicas() {
        let text = "a 127.0.0.1:1@11 master - 0 5 3 connected 0-9 12 [13->-b]\n\
                    b 127.0.0.1:2@12,host myself,slave a 0 5 3 connected\n";
        let view = View::parse(text).unwrap();
        assert!(view.follows("127.0.0.1:1") && !view.serves(5) && !view.is_master());
        assert!(view.sees_master("127.0.0.1:1") && !view.sees_master("127.0.0.1:2"));
        assert!(view.agrees(12, "127.0.0.1:1").is_ok() && view.agrees(13, "127.0.0.1:1").is_err());
        assert!(view.knows(2).is_ok() && view.knows(3).is_err());
        assert_eq!(view.epoch(), 3);
    }
}
