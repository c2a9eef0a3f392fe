//! What a server sends unasked: finding it in the stream of its answers, and taking it out.
//!
//! Only whole messages are taken out, so the client understands all that is left, and can't know
//! that there was more.

mod postgres;
mod redis;
#[cfg(test)]
mod tests;
mod zookeeper;

use std::fmt;

/// A protocol in which servers send something unasked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// RESP2 and RESP3. Unasked are the messages of channels, patterns and shards, and what is said
    /// to caches.
    Redis,
    /// Version 3 of PostgreSQL's. Unasked are notifications.
    Postgres,
    /// The protocol of ZooKeeper's clients. Unasked are the events of watches, and of sessions.
    ZooKeeper,
}

/// What stands first in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    /// An answer of this length.
    Answer(usize),
    /// A message of this length that nobody asked for.
    Push(usize),
    /// Something that is not whole yet.
    Part,
    /// Something else than this protocol, such as TLS.
    Foreign,
}

/// Reads what a server sends, message by message.
trait Reader: fmt::Debug + Send {
    fn first(&mut self, bytes: &[u8]) -> First;
}

/// Takes out what a server sent unasked on one connection.
#[derive(Debug)]
pub(super) struct Filter {
    /// `None` once there was something that it does not understand.
    reader: Option<Box<dyn Reader>>,
    unread: Vec<u8>,
}

/// Messages that have come whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) answers: u64,
    pub(super) pushes: u64,
    /// Those of the pushes that were taken out.
    pub(super) lost: u64,
}

impl Filter {
    /// A filter for a connection from its start.
    pub(super) fn new(protocol: Protocol) -> Self {
        let reader: Box<dyn Reader> = match protocol {
            Protocol::Redis => Box::<redis::Values>::default(),
            Protocol::Postgres => Box::<postgres::Messages>::default(),
            Protocol::ZooKeeper => Box::<zookeeper::Records>::default(),
        };
        Self { reader: Some(reader), unread: Vec::new() }
    }

    /// Leaves of these bytes, which come next, what may go on now; nothing, if they are a part of a
    /// message. Which messages there were.
    pub(super) fn pass(&mut self, bytes: &mut Vec<u8>, lose: bool) -> Seen {
        let mut seen = Seen::default();
        let Some(reader) = &mut self.reader else {
            return seen;
        };
        self.unread.append(bytes);
        let mut read = 0;
        loop {
            let rest = &self.unread[read..];
            let length = match reader.first(rest) {
                First::Push(length) => {
                    seen.pushes += 1;
                    if lose {
                        seen.lost += 1;
                        read += length;
                        continue;
                    }
                    length
                }
                First::Answer(length) => {
                    seen.answers += 1;
                    length
                }
                First::Part => break,
                First::Foreign => {
                    self.reader = None;
                    bytes.append(&mut self.unread.split_off(read));
                    self.unread.clear();
                    return seen;
                }
            };
            bytes.extend(&rest[..length]);
            read += length;
        }
        self.unread.drain(..read);
        seen
    }

    /// What was kept back of a message whose rest never came.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.unread)
    }
}
