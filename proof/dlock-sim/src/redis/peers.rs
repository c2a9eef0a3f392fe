//! A server as the others see it: a master, a replica, or a node of a cluster. Its user carries what
//! one server gives to another one.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    mem,
    rc::Rc,
};

use super::{
    Redis,
    data::{Entry, integer},
    resp::{Bytes, Value},
    slots::{Member, Slots, bucket_in},
};

const WAIT_ON_REPLICA: &str = "ERR WAIT cannot be used with replica instances. Please also note that \
                               since Redis 4.0 if a replica is configured to be writable (which is \
                               not the default) writes to replicas are just local and are not \
                               propagated.";

/// What a server knows about its replicas.
#[derive(Debug, Default)]
pub(super) struct Replication {
    /// The number of the last write.
    offset: u64,
    /// It was not sent to the replicas yet.
    unsent: bool,
    /// The last write of each connection. `WAIT` need not wait for others.
    written: BTreeMap<u64, u64>,
    /// The last write that each replica has acknowledged.
    pub(super) acknowledged: BTreeMap<usize, u64>,
    /// The connections that `WAIT` blocks: the write, how many replicas must have it, and until when.
    pub(super) waits: BTreeMap<u64, (u64, usize, u64)>,
}

impl Replication {
    /// Begins anew, with the replicas and the connections gone.
    pub(super) fn reset(&mut self) {
        *self = Self { offset: self.offset, ..Self::default() };
    }

    pub(super) fn closed(&mut self, connection: u64) {
        self.written.remove(&connection);
        self.waits.remove(&connection);
    }

    /// Returns how many replicas have this write.
    fn count(&self, offset: u64) -> usize {
        self.acknowledged.values().filter(|acknowledged| **acknowledged >= offset).count()
    }
}

/// A copy of the data of a master, which a replica takes in place of its own.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    entries: BTreeMap<Bytes, Entry>,
    history: u64,
    offset: u64,
}

/// Masters and replicas.
impl Redis {
    pub(crate) fn is_replica(&self) -> bool {
        self.data.borrow().is_replica
    }

    /// Becomes a replica, which refuses writes. Its connections have to be ended.
    pub(crate) fn demote(&mut self) {
        let mut data = self.data.borrow_mut();
        data.is_replica = true;
        data.restart(true);
        self.received.clear();
        self.replication.reset();
    }

    /// Becomes a master, with a history of its own from now on.
    pub(crate) fn promote(&mut self, history: u64) {
        self.data.borrow_mut().is_replica = false;
        self.history = history;
        self.replication.reset();
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let entries = self.data.borrow().entries.clone();
        Snapshot { entries, history: self.history, offset: self.replication.offset }
    }

    /// Takes the data of a master in place of its own.
    pub(crate) fn load(&mut self, snapshot: Snapshot) {
        self.data.borrow_mut().entries = snapshot.entries;
        (self.history, self.replication.offset) = (snapshot.history, snapshot.offset);
    }

    /// Returns what is to be sent to the replicas, if it has written something.
    pub(crate) fn unsent(&mut self) -> Option<Snapshot> {
        mem::take(&mut self.replication.unsent).then(|| self.snapshot())
    }

    /// Returns the number of the last write that it has.
    pub(crate) fn offset(&self) -> u64 {
        self.replication.offset
    }

    /// Returns the last write that counts if each one has to be on this number of replicas.
    pub(crate) fn counts(&self, replicas: usize) -> u64 {
        let Some(last) = replicas.checked_sub(1) else { return self.offset() };
        let mut all: Vec<u64> = self.replication.acknowledged.values().copied().collect();
        all.sort_unstable_by(|one, other| other.cmp(one));
        all.get(last).copied().unwrap_or(0)
    }

    /// A replica has what it acknowledges. Returns what is to be sent at this time of the clock.
    pub(crate) fn acknowledged(
        &mut self,
        replica: usize,
        offset: u64,
        now: u64,
    ) -> Vec<(u64, Vec<u8>)> {
        self.replication.acknowledged.insert(replica, offset);
        self.resume(now)
    }

    pub(crate) fn forget_replica(&mut self, replica: usize) {
        self.replication.acknowledged.remove(&replica);
    }

    /// Returns until when the first connection waits for replicas.
    pub(crate) fn waits_until(&self) -> Option<u64> {
        self.replication.waits.values().map(|(.., until)| *until).min()
    }

    /// Ends the waits that are over at this time of the clock. Returns what is to be sent.
    pub(crate) fn resume(&mut self, now: u64) -> Vec<(u64, Vec<u8>)> {
        self.data.borrow_mut().now = now;
        let mut sent = Vec::new();
        for (connection, (offset, replicas, until)) in self.replication.waits.clone() {
            let count = self.replication.count(offset);
            if count >= replicas || until <= now {
                self.replication.waits.remove(&connection);
                sent.push((connection, Value::count(count).encoded()));
                sent.extend(self.serve(connection));
            }
        }
        sent
    }

    /// Counts the writes of a command.
    pub(super) fn replicate(&mut self, connection: u64) {
        if mem::take(&mut self.data.borrow_mut().has_written) {
            self.replication.offset += 1;
            self.replication.unsent = true;
            self.replication.written.insert(connection, self.replication.offset);
        }
    }

    /// `WAIT replicas milliseconds`. Returns no answer if it blocks the connection.
    pub(super) fn wait(&mut self, connection: u64, words: &[Bytes]) -> Option<Value> {
        let data = self.data.borrow();
        if data.is_replica {
            return Some(Value::error(WAIT_ON_REPLICA));
        }
        let [replicas, milliseconds] = [1, 2].map(|at| integer(&words[at]).unsigned_abs());
        let replicas = usize::try_from(replicas).unwrap_or(usize::MAX);
        let offset = self.replication.written.get(&connection).copied().unwrap_or(0);
        let count = self.replication.count(offset);
        if count >= replicas {
            return Some(Value::count(count));
        }
        let until = data.now + milliseconds * 1000;
        self.replication.waits.insert(connection, (offset, replicas, until));
        None
    }
}

/// Nodes of a cluster.
impl Redis {
    /// Becomes the node with this number.
    pub(crate) fn in_cluster(mut self, at: usize, slots: &Rc<RefCell<Slots>>) -> Self {
        let (slots, asking) = (Rc::clone(slots), BTreeSet::new());
        self.member = Some(Member { at, slots, asking });
        self
    }

    /// Answers a command about slots, or one for keys that are elsewhere.
    pub(super) fn redirect(&mut self, connection: u64, words: &[Bytes]) -> Option<Value> {
        let member = self.member.as_mut()?;
        let is_asking = member.asking.remove(&connection);
        let slots = member.slots.borrow();
        match words[0].to_ascii_uppercase().as_slice() {
            b"ASKING" => {
                member.asking.insert(connection);
                Some(Value::ok())
            }
            b"CLUSTER" => Some(slots.map(member.at)),
            _ => slots.refusal(member.at, words, is_asking, &mut self.data.borrow_mut()),
        }
    }

    /// Returns the buckets that have keys.
    pub(crate) fn buckets(&self) -> BTreeSet<usize> {
        self.data.borrow().entries.keys().filter_map(|key| bucket_in(key)).collect()
    }

    /// Moves a key of this bucket to another node. Returns false if there is none.
    pub(crate) fn move_key(&mut self, bucket: usize, to: &mut Self) -> bool {
        let mut data = self.data.borrow_mut();
        let key = data.entries.keys().find(|key| bucket_in(key) == Some(bucket)).cloned();
        let moved = key.and_then(|key| data.entries.remove_entry(&key));
        let moves = moved.is_some();
        to.data.borrow_mut().entries.extend(moved);
        moves
    }

    /// Ends all subscriptions of this bucket. Returns what is to be sent to each connection.
    pub(crate) fn give_up(&mut self, bucket: usize) -> Vec<(u64, Vec<u8>)> {
        let ended = self.data.borrow_mut().give_up(bucket).into_iter();
        ended.map(|(connection, notice)| (connection, notice.encoded())).collect()
    }
}
