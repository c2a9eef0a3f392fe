//! Finds the messages that a server pushes in the stream of its answers, and removes them.
//!
//! Only whole messages are removed, so the client can parse the remaining bytes and can't detect
//! the loss.

mod etcd;
mod postgres;
mod redis;
#[cfg(test)]
mod tests;
mod zookeeper;

use std::fmt;

/// A protocol in which servers push messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// RESP2 and RESP3. Pushed messages are those of channels, patterns and shards, and cache
    /// invalidations.
    Redis,
    /// Version 3 of PostgreSQL's protocol. Pushed messages are notifications.
    Postgres,
    /// The protocol of ZooKeeper's clients. Pushed messages are the events of watches and of
    /// sessions.
    ZooKeeper,
    /// gRPC as etcd speaks it. Pushed messages are the events of watches.
    Etcd,
}

/// The first message in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    /// An answer of this length.
    Answer(usize),
    /// A pushed message of this length.
    Push(usize),
    /// Something of this length that is no message.
    Other(usize),
    /// An incomplete message.
    Part,
    /// Bytes of another protocol, such as TLS.
    Foreign,
}

/// Parses a server's stream, message by message.
trait Reader: fmt::Debug + Send {
    fn first(&mut self, bytes: &[u8]) -> First;
}

/// Removes pushed messages from the stream of one connection.
#[derive(Debug)]
pub(super) struct Filter {
    /// `None` after bytes that the reader can't parse.
    reader: Option<Box<dyn Reader>>,
    unread: Vec<u8>,
}

/// The number of complete messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) answers: u64,
    pub(super) pushes: u64,
    /// The number of pushed messages that were removed.
    pub(super) lost: u64,
}

impl Filter {
    /// Returns a filter for a connection that has just opened.
    pub(super) fn new(protocol: Protocol) -> Self {
        let reader: Box<dyn Reader> = match protocol {
            Protocol::Redis => Box::<redis::Values>::default(),
            Protocol::Postgres => Box::<postgres::Messages>::default(),
            Protocol::ZooKeeper => Box::<zookeeper::Records>::default(),
            Protocol::Etcd => Box::<etcd::Frames>::default(),
        };
        Self { reader: Some(reader), unread: Vec::new() }
    }

    /// Takes the next bytes and leaves in `bytes` those that may be forwarded now; none, if they
    /// are part of an incomplete message. Returns the numbers of complete messages.
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
                First::Other(length) => length,
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

    /// Returns the bytes of a message that was never completed.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.unread)
    }
}
