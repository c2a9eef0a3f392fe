//! What clients ask of the members.

use std::{fmt, mem};

use prost::Message;

use super::{ADDRESSES, Caller, Cluster, MemberState, Origin, Renewal, header, member_id};
use crate::etcd::{
    data::{CallError, Proposal},
    grpc::Wire,
    messages::{
        DeleteRangeRequest, Header, LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest,
        Member, MemberListRequest, MemberListResponse, PutRequest, RangeRequest, RangeResponse,
        StatusRequest, StatusResponse, TxnRequest, Unary, WatchRequest, WatchResponse,
    },
};

const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
const WATCH: &str = "/etcdserverpb.Watch/Watch";

const STOPPED: CallError = CallError(2, "raft: stopped");
const DENIED: CallError = CallError(7, "etcdserver: permission denied");
const UNKNOWN_METHOD: CallError = CallError(12, "unknown method");

impl Cluster {
    /// Receives bytes of a connection to a member. Returns the bytes to send.
    pub(crate) fn receive(
        &mut self,
        member: usize,
        connection: u64,
        bytes: &[u8],
    ) -> Vec<(u64, Vec<u8>)> {
        let (_, wire) = self.wires.entry(connection).or_insert_with(|| (member, Wire::new()));
        for received in wire.receive(bytes) {
            let caller = Caller { connection, stream: received.stream };
            match received.message {
                Some(message) => match self.take(member, caller, &received.path, &message) {
                    Ok(Some(answer)) => self.answer(caller, Ok(answer)),
                    Ok(None) => {}
                    Err(refusal) => self.answer(caller, Err(refusal)),
                },
                None if [KEEP_ALIVE, WATCH].contains(&&*received.path) => {
                    self.members[member].watches.retain(|(of, _), _| *of != caller);
                    self.end(caller, None);
                }
                None => {}
            }
        }
        self.active.insert(connection);
        self.sent()
    }

    /// Ends a connection.
    pub(crate) fn closed(&mut self, connection: u64) {
        let Some((member, _)) = self.wires.remove(&connection) else { return };
        self.members[member].watches.retain(|(of, _), _| of.connection != connection);
    }

    /// Takes a message of a client. Returns the answer if it is known.
    fn take(
        &mut self,
        member: usize,
        caller: Caller,
        path: &str,
        message: &[u8],
    ) -> Result<Option<Vec<u8>>, CallError> {
        let header = self.header(member);
        let proposal = match path {
            PutRequest::PATH => Proposal::Put(self.decoded(member, message)),
            DeleteRangeRequest::PATH => Proposal::Delete(self.decoded(member, message)),
            TxnRequest::PATH => Proposal::Txn(self.decoded(member, message)),
            LeaseGrantRequest::PATH => {
                let LeaseGrantRequest { ttl } = self.decoded(member, message);
                Proposal::Grant { id: (self.rng.any() >> 1).cast_signed(), ttl }
            }
            LeaseRevokeRequest::PATH => {
                let LeaseRevokeRequest { id } = self.decoded(member, message);
                Proposal::Revoke(id)
            }
            RangeRequest::PATH => {
                let read: RangeRequest = self.decoded(member, message);
                if read.serializable {
                    return Ok(Some(self.read(member, &read)));
                }
                Proposal::Read(read)
            }
            KEEP_ALIVE => {
                let LeaseKeepAliveRequest { id: lease } = self.decoded(member, message);
                self.renewals.push(Renewal { member, caller, lease, header });
                return Ok(None);
            }
            WATCH => {
                let request = self.decoded(member, message);
                self.watch(member, caller, request);
                return Ok(None);
            }
            StatusRequest::PATH => {
                let leader = self.followed_by(member).map_or(0, member_id);
                let (header, version) = (Some(header), "3.4.23".to_owned());
                let status = StatusResponse { header, version, leader, ..Default::default() };
                return Ok(Some(status.encode_to_vec()));
            }
            MemberListRequest::PATH => {
                // A member does not learn of its own removal.
                let is_listed = |at: &usize| *at == member || !self.members[*at].is_removed;
                let members = (0..ADDRESSES.len()).filter(is_listed).map(|at| Member {
                    id: member_id(at),
                    name: format!("n{at}"),
                    client_urls: vec![format!("http://{}", ADDRESSES[at])],
                    is_learner: false,
                });
                let (header, members) = (Some(header), members.collect());
                return Ok(Some(MemberListResponse { header, members }.encode_to_vec()));
            }
            _ => return Err(UNKNOWN_METHOD),
        };
        self.propose(Origin { member, caller: Some(caller) }, proposal).map(|()| None)
    }

    fn decoded<M: Message + Default + fmt::Debug>(&mut self, member: usize, message: &[u8]) -> M {
        let message = M::decode(message).expect("a client sends valid messages");
        self.say(format_args!("member {member} receives {message:?}"));
        message
    }

    /// Receives a request that a majority has to commit.
    fn propose(&mut self, origin: Origin, proposal: Proposal) -> Result<(), CallError> {
        if self.members[origin.member].is_removed {
            return Err(STOPPED);
        }
        if self.now < self.denied_until {
            let mut deleted = Vec::new();
            find_deleted(&proposal, &mut deleted);
            let holders = self.holders();
            deleted.retain(|key| holders.iter().any(|(_, holder)| holder.key == key[..]));
            if !deleted.is_empty() {
                self.has_denied = true;
                self.denied.extend(deleted);
                return Err(DENIED);
            }
        }
        self.proposals.push((origin, proposal));
        Ok(())
    }

    fn watch(&mut self, member: usize, caller: Caller, request: WatchRequest) {
        let header = Some(self.header(member));
        let mut answer = WatchResponse { header, ..WatchResponse::default() };
        let watches = &mut self.members[member].watches;
        if let Some(create) = request.create {
            (answer.watch_id, answer.created) = (create.watch_id, true);
            watches.insert((caller, create.watch_id), create);
        } else if let Some(cancel) = request.cancel
            && watches.remove(&(caller, cancel.watch_id)).is_some()
        {
            (answer.watch_id, answer.canceled) = (cancel.watch_id, true);
        } else {
            return;
        }
        self.send(caller, &answer);
    }

    pub(super) fn header(&self, member: usize) -> Header {
        let MemberState { term, data, .. } = &self.members[member];
        header(member, *term, data.revision)
    }

    /// Reads what a member shows without the others.
    fn read(&self, member: usize, read: &RangeRequest) -> Vec<u8> {
        let state = &self.members[member];
        let shown = state.shown.as_ref().filter(|(_, until)| self.now < *until);
        let data = shown.map_or(&state.data, |(data, _)| data);
        let answer = data.range(read);
        let header = Some(Header { revision: data.revision, ..self.header(member) });
        RangeResponse { header, ..answer }.encode_to_vec()
    }

    pub(super) fn send(&mut self, caller: Caller, message: &impl Message) {
        if let Some((_, wire)) = self.wires.get_mut(&caller.connection) {
            wire.send(caller.stream, &message.encode_to_vec());
            self.active.insert(caller.connection);
        }
    }

    fn end(&mut self, caller: Caller, refusal: Option<CallError>) {
        if let Some((_, wire)) = self.wires.get_mut(&caller.connection) {
            wire.end(caller.stream, refusal);
            self.active.insert(caller.connection);
        }
    }

    /// Answers the only message of a stream.
    pub(super) fn answer(&mut self, caller: Caller, answer: Result<Vec<u8>, CallError>) {
        if let (Ok(message), Some((_, wire))) = (&answer, self.wires.get_mut(&caller.connection)) {
            wire.send(caller.stream, message);
        }
        self.end(caller, answer.err());
    }

    pub(super) fn sent(&mut self) -> Vec<(u64, Vec<u8>)> {
        let active = mem::take(&mut self.active).into_iter();
        let sent = active.filter_map(|id| Some((id, self.wires.get_mut(&id)?.1.take())));
        sent.filter(|(_, bytes)| !bytes.is_empty()).collect()
    }
}

/// Finds the keys that a proposal deletes.
fn find_deleted(proposal: &Proposal, deleted: &mut Vec<Vec<u8>>) {
    match proposal {
        Proposal::Delete(delete) => deleted.push(delete.key.to_vec()),
        Proposal::Txn(txn) => {
            for op in txn.success.iter().chain(&txn.failure) {
                let inner = op.delete_range.clone().map(Proposal::Delete);
                let inner = inner.or_else(|| op.txn.clone().map(Proposal::Txn));
                inner.iter().for_each(|inner| find_deleted(inner, deleted));
            }
        }
        _ => {}
    }
}
