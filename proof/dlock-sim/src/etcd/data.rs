//! The data of a member: keys and leases.
//!
//! All members apply the same requests in the same order, and so have the same revisions.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use prost::{Message, bytes::Bytes};

use super::messages::{
    Compare, CompareResult, DeleteRangeRequest, DeleteRangeResponse, Done, Event, EventKey,
    FilterType, Header, KeyValue, LeaseGrantResponse, PutRequest, RangeRequest, RangeResponse,
    RequestOp, ResponseOp, SortOrder, TxnRequest, TxnResponse, WatchCreateRequest,
};

/// The shortest TTL that is granted, one and a half election timeouts, in seconds.
const SHORTEST: i64 = 2;
/// `Compare.target` for the create revision. The other one is the mod revision.
const CREATED: i32 = 1;

/// An error: the code of gRPC, and etcd's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallError(pub(super) u16, pub(super) &'static str);

const NO_LEASE: CallError = CallError(5, "etcdserver: requested lease not found");

/// What a majority commits before it is applied.
#[derive(Clone, Debug)]
pub(super) enum Proposal {
    /// The first entry of a term.
    Nothing,
    Read(RangeRequest),
    Put(PutRequest),
    Delete(DeleteRangeRequest),
    Txn(TxnRequest),
    Grant {
        id: i64,
        ttl: i64,
    },
    Revoke(i64),
}

#[derive(Clone, Debug, Default)]
pub(super) struct MemberData {
    pub(super) keys: BTreeMap<Bytes, KeyValue>,
    pub(super) leases: BTreeMap<i64, Lease>,
    pub(super) revision: i64,
    /// The keys that the last request has changed, and whether each was put.
    pub(super) changes: Vec<(Bytes, bool)>,
}

#[derive(Clone, Debug)]
pub(super) struct Lease {
    /// In seconds.
    pub(super) ttl: i64,
    keys: BTreeSet<Bytes>,
}

impl MemberData {
    /// Returns data without keys, at this revision.
    pub(super) fn at(revision: i64) -> Self {
        Self { revision, ..Self::default() }
    }

    /// Applies a proposal. Returns the answer with this header, in which the revision is set.
    pub(super) fn apply(
        &mut self,
        proposal: &Proposal,
        header: Header,
    ) -> Result<Vec<u8>, CallError> {
        self.changes.clear();
        let head = |data: &Self| Some(Header { revision: data.now(), ..header });
        let answer = match proposal {
            Proposal::Nothing => Vec::new(),
            Proposal::Read(read) => {
                RangeResponse { header: head(self), ..self.range(read) }.encode_to_vec()
            }
            Proposal::Put(put) => {
                self.check_lease(put)?;
                self.put(put);
                Done { header: head(self) }.encode_to_vec()
            }
            Proposal::Delete(delete) => {
                let deleted = self.delete(&delete.key);
                DeleteRangeResponse { header: head(self), deleted }.encode_to_vec()
            }
            Proposal::Txn(txn) => {
                let mut taken = VecDeque::new();
                self.decide(txn, &mut taken)?;
                let answer = self.run(txn, &mut taken);
                TxnResponse { header: head(self), ..answer }.encode_to_vec()
            }
            Proposal::Grant { id, ttl } => {
                let ttl = SHORTEST.max(*ttl);
                self.leases.insert(*id, Lease { ttl, keys: BTreeSet::new() });
                LeaseGrantResponse { header: head(self), id: *id, ttl }.encode_to_vec()
            }
            Proposal::Revoke(id) => {
                let lease = self.leases.remove(id).ok_or(NO_LEASE)?;
                for key in lease.keys {
                    self.delete(&key);
                }
                Done { header: head(self) }.encode_to_vec()
            }
        };
        self.revision = self.now();
        Ok(answer)
    }

    /// Reads keys, as the current request finds them.
    pub(super) fn range(&self, read: &RangeRequest) -> RangeResponse {
        let mut kvs: Vec<KeyValue> = self.live(&read.key, &read.range_end).cloned().collect();
        if read.max_create_revision != 0 {
            kvs.retain(|kv| kv.create_revision <= read.max_create_revision);
        }
        // dlock sorts by the create revision only.
        if read.sort_order == i32::from(SortOrder::Descend) {
            kvs.sort_by_key(|kv| std::cmp::Reverse(kv.create_revision));
        }
        let limit = usize::try_from(read.limit).ok().filter(|limit| *limit > 0);
        let more = limit.is_some_and(|limit| kvs.len() > limit);
        kvs.truncate(limit.unwrap_or(usize::MAX));
        if read.keys_only {
            kvs.iter_mut().for_each(|kv| kv.value.clear());
        }
        let header = Some(Header { revision: self.now(), ..Header::default() });
        RangeResponse { header, kvs, more }
    }

    /// Returns the events of the last request for a watch.
    pub(super) fn events(&self, watch: &WatchCreateRequest) -> Vec<Event> {
        let is_watched = |key: &Bytes| match watch.range_end.is_empty() {
            true => *key == watch.key,
            false => watch.key <= *key && *key < watch.range_end,
        };
        let no_puts = watch.filters.contains(&FilterType::NoPut.into());
        let seen =
            self.changes.iter().filter(|(key, is_put)| is_watched(key) && !(no_puts && *is_put));
        seen.map(|_| Event { kv: Some(EventKey { mod_revision: self.revision }) }).collect()
    }

    /// The revision at which the current request finds the keys, with what it has changed so far.
    fn now(&self) -> i64 {
        self.revision + i64::from(!self.changes.is_empty())
    }

    /// Returns the keys that exist: one, or those up to, but without, `end`.
    fn live<'a>(
        &'a self,
        key: &Bytes,
        end: &Bytes,
    ) -> impl Iterator<Item = &'a KeyValue> + use<'a> {
        let end: Bytes =
            if end.is_empty() { [&key[..], b"\0"].concat().into() } else { end.clone() };
        // A map refuses such a range.
        let range = (*key < end).then(|| self.keys.range(key.clone()..end));
        range.into_iter().flatten().map(|(_, kv)| kv)
    }

    fn check_lease(&self, put: &PutRequest) -> Result<(), CallError> {
        let exists = put.lease == 0 || self.leases.contains_key(&put.lease);
        if exists { Ok(()) } else { Err(NO_LEASE) }
    }

    fn put(&mut self, put: &PutRequest) {
        let since = self.revision + 1;
        let before = self.detach(&put.key);
        if let Some(lease) = self.leases.get_mut(&put.lease) {
            lease.keys.insert(put.key.clone());
        }
        let kv = KeyValue {
            key: put.key.clone(),
            create_revision: before.map_or(since, |kv| kv.create_revision),
            mod_revision: since,
            value: put.value.clone(),
            lease: put.lease,
        };
        self.changes.push((put.key.clone(), true));
        self.keys.insert(put.key.clone(), kv);
    }

    /// Returns the number of keys that it has deleted.
    fn delete(&mut self, key: &Bytes) -> i64 {
        let is_there = self.detach(key).is_some();
        if is_there {
            self.changes.push((key.clone(), false));
        }
        is_there.into()
    }

    /// Removes a key, also from its lease.
    fn detach(&mut self, key: &Bytes) -> Option<KeyValue> {
        let kv = self.keys.remove(key)?;
        if let Some(lease) = self.leases.get_mut(&kv.lease) {
            lease.keys.remove(key);
        }
        Some(kv)
    }

    fn is_true(&self, compare: &Compare) -> bool {
        let wanted = compare.create_revision.or(compare.mod_revision).unwrap_or(0);
        let is_true = |kv: &KeyValue| {
            let found =
                if compare.target == CREATED { kv.create_revision } else { kv.mod_revision };
            match compare.result == i32::from(CompareResult::Less) {
                true => found < wanted,
                false => found == wanted,
            }
        };
        let mut found = self.live(&compare.key, &compare.range_end).peekable();
        let is_absent = found.peek().is_none();
        if is_absent { is_true(&KeyValue::default()) } else { found.all(is_true) }
    }

    /// Decides which branches a transaction and those within it take, since all conditions are
    /// compared before the first change.
    fn decide(&self, txn: &TxnRequest, taken: &mut VecDeque<bool>) -> Result<(), CallError> {
        let succeeded = txn.compare.iter().all(|compare| self.is_true(compare));
        taken.push_back(succeeded);
        for op in branch(txn, succeeded) {
            op.put.iter().try_for_each(|put| self.check_lease(put))?;
            op.txn.iter().try_for_each(|txn| self.decide(txn, taken))?;
        }
        Ok(())
    }

    fn run(&mut self, txn: &TxnRequest, taken: &mut VecDeque<bool>) -> TxnResponse {
        let succeeded = taken.pop_front().unwrap_or(false);
        let mut responses = Vec::new();
        for op in branch(txn, succeeded) {
            let mut response = ResponseOp::default();
            if let Some(read) = &op.range {
                response.range = Some(self.range(read));
            } else if let Some(put) = &op.put {
                self.put(put);
            } else if let Some(delete) = &op.delete_range {
                let deleted = self.delete(&delete.key);
                let header = Some(Header { revision: self.now(), ..Header::default() });
                response.delete_range = Some(DeleteRangeResponse { header, deleted });
            } else if let Some(txn) = &op.txn {
                response.txn = Some(self.run(txn, taken));
            }
            responses.push(response);
        }
        TxnResponse { header: Some(Header::default()), succeeded, responses }
    }
}

fn branch(txn: &TxnRequest, succeeded: bool) -> &[RequestOp] {
    if succeeded { &txn.success } else { &txn.failure }
}
