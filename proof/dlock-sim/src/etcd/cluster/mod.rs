//! The members, and what is committed among them.
//!
//! Raft itself is not executed. One log has what is committed, and each member applies it when it has
//! received it. A member that is cut off from the others, stopped, or slow answers from older data. A
//! leader without a majority commits nothing, and may be replaced. It goes on answering keepalives from
//! memory until it learns of that, and may then ask its successor to end the leases that it remembers
//! as ended. What it has not committed is lost, or its successor commits it.
//!
//! Requests for which there is no majority are never answered: etcd needs 7 s to refuse them, and dlock
//! waits for less.

mod calls;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, mem,
    rc::Rc,
};

use super::{
    data::{MemberData, Proposal},
    grpc::Wire,
    messages::{Header, KeyValue, LeaseTtlResponse, WatchCreateRequest, WatchResponse},
};
use crate::{
    faults::Micros,
    plan::Plan,
    random::Rng,
    world::{Held, process_in},
};

/// The addresses of the members.
pub(super) const ADDRESSES: [&str; 3] = ["10.0.0.1:2379", "10.0.0.2:2379", "10.0.0.3:2379"];
const MAJORITY: usize = 2;
/// A follower that hears no leader for this time, or up to twice this time, wants to be the leader.
const ELECTION: Micros = 1_000_000;
/// How often a leader looks for leases that have ended.
const LEASE_CHECK: Micros = 500_000;
const SECOND: Micros = 1_000_000;
/// How long after the last refusal a client has repeated a release: its pauses are up to 5 s long.
const REPEATED: Micros = 7 * SECOND;
/// How long after their commit a member applies entries at most, unless a fault makes it slower.
const SLOWEST: Micros = 20_000;
/// The number of tokens of one revision.
const TOKENS: u64 = 1 << 15;
/// The chances, in a million for each millisecond, that a former leader learns of its successor: if
/// it is connected, and if it only notices that nobody answers.
const LEARNS: [u64; 2] = [30_000, 2_000];

pub(super) struct Cluster {
    now: Micros,
    rng: Rng,
    members: Vec<MemberState>,
    /// What is committed.
    log: Vec<Rc<LogEntry>>,
    term: u64,
    /// The member that a majority has elected.
    leader: Option<usize>,
    /// When another one is elected unless the leader has a majority again.
    election: Option<Micros>,
    next_check: Micros,
    /// The connections, each with its member.
    wires: BTreeMap<u64, (usize, Wire)>,
    /// The connections on which something is to be sent.
    active: BTreeSet<u64>,
    /// What has not reached a leader.
    proposals: Vec<(Origin, Proposal)>,
    renewals: Vec<Renewal>,
    /// Until when deletions of claims are refused, and the keys that were to be deleted.
    denied_until: Micros,
    denied: BTreeSet<Vec<u8>>,
    pub(super) has_denied: bool,
    /// When no session is left that was lost in a fault.
    settled: Micros,
    /// What has happened, for people.
    pub(super) said: Option<Vec<String>>,
}

#[derive(Default)]
struct MemberState {
    data: MemberData,
    /// The number of entries of the log that it has applied, and the term of the last one.
    applied: usize,
    term: u64,
    clock: Micros,
    /// The process does not run.
    is_still: bool,
    /// It was removed from the cluster, and its process has not ended yet.
    is_removed: bool,
    /// Until when it is cut off from the other members.
    cut_until: Micros,
    /// How long after their commit it applies entries, and until when it is slower than that.
    delay: Micros,
    slow: (Micros, Micros),
    /// The term in which it leads, as far as it knows.
    leads: Option<u64>,
    /// What it has not committed as a leader.
    proposed: Vec<(Origin, Proposal)>,
    /// When leases end by its clock, if it leads.
    ends: Option<BTreeMap<i64, Micros>>,
    /// The data that its reads show, for this long after it has sent the events of later ones.
    shown: Option<(MemberData, Micros)>,
    watches: BTreeMap<(Caller, i64), WatchCreateRequest>,
}

struct LogEntry {
    term: u64,
    at: Micros,
    origin: Origin,
    proposal: Proposal,
}

/// A stream of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Caller {
    connection: u64,
    stream: u32,
}

/// The member that has received a request, and the client that waits for the answer.
#[derive(Clone, Copy, Debug)]
struct Origin {
    member: usize,
    caller: Option<Caller>,
}

struct Renewal {
    member: usize,
    caller: Caller,
    lease: i64,
    /// From before the renewal.
    header: Header,
}

impl MemberState {
    /// Returns the leases that have ended, as this leader knows.
    fn ended(&self) -> Vec<i64> {
        let ends = self.ends.iter().flatten();
        ends.filter(|(_, end)| **end <= self.clock).map(|(lease, _)| *lease).collect()
    }

    /// Records what an entry does to the leases, if it leads.
    fn follow_leases(&mut self, entry: &LogEntry, granted: bool) {
        let end = |ttl: i64| self.clock + SECOND * ttl.unsigned_abs();
        match (&entry.proposal, &mut self.ends) {
            // A new leader gives each lease its whole time again.
            (Proposal::Nothing, ends) if self.leads == Some(entry.term) => {
                let all = self.data.leases.iter();
                *ends = Some(all.map(|(id, lease)| (*id, end(lease.ttl) + ELECTION)).collect());
            }
            (Proposal::Grant { id, .. }, Some(ends)) if granted => {
                ends.extend(self.data.leases.get(id).map(|lease| (*id, end(lease.ttl))));
            }
            (Proposal::Revoke(id), Some(ends)) => {
                ends.remove(id);
            }
            _ => {}
        }
    }
}

impl Cluster {
    pub(super) fn new(plan: &Plan, prints: bool) -> Self {
        let mut rng = Rng::new(plan.seed, "cluster");
        // Two votes are answered in time, and a request within the shortest lease.
        let slowest = SLOWEST.min(plan.response_timeout / 5);
        let members = ADDRESSES.map(|_| {
            let longest = rng.pick(&[1, 3_000, slowest / 4, slowest]);
            MemberState {
                data: MemberData::at(1),
                delay: rng.below(longest),
                ..MemberState::default()
            }
        });
        let mut cluster = Self {
            now: 0,
            rng,
            members: members.into(),
            log: Vec::new(),
            term: 1,
            leader: None,
            election: None,
            next_check: 0,
            wires: BTreeMap::new(),
            active: BTreeSet::new(),
            proposals: Vec::new(),
            renewals: Vec::new(),
            denied_until: 0,
            denied: BTreeSet::new(),
            has_denied: false,
            settled: plan.storm + plan.longest_hold(),
            said: prints.then(Vec::new),
        };
        cluster.lead(0);
        cluster
    }

    fn say(&mut self, what: fmt::Arguments<'_>) {
        if let Some(said) = &mut self.said {
            said.push(what.to_string());
        }
    }

    /// Lets the members work for a millisecond. `hosts` has the clock of each, and whether its process
    /// stands still. Returns the bytes to send.
    pub(super) fn tick(&mut self, now: Micros, hosts: &[(Micros, bool)]) -> Vec<(u64, Vec<u8>)> {
        self.now = now;
        for (member, host) in self.members.iter_mut().zip(hosts) {
            (member.clock, member.is_still) = *host;
        }
        self.elect();
        self.learn();
        self.end_leases();
        self.commit();
        for member in 0..self.members.len() {
            self.apply(member);
        }
        self.renew();
        self.sent()
    }

    /// Returns whether a member and its connections to the others work.
    fn is_well(&self, member: usize) -> bool {
        let member = &self.members[member];
        !member.is_still && !member.is_removed && self.now >= member.cut_until
    }

    fn well(&self) -> Vec<usize> {
        (0..self.members.len()).filter(|member| self.is_well(*member)).collect()
    }

    /// Returns the leader if it can commit something.
    fn in_office(&self) -> Option<usize> {
        self.leader.filter(|leader| self.is_well(*leader) && self.well().len() >= MAJORITY)
    }

    /// Returns the leader that a member follows and reaches, itself if it takes itself for that.
    fn followed_by(&self, member: usize) -> Option<usize> {
        if self.members[member].leads.is_some() {
            return Some(member);
        }
        self.leader.filter(|leader| self.is_well(member) && self.is_well(*leader))
    }

    fn elect(&mut self) {
        if self.in_office().is_some() {
            self.election = None;
            return;
        }
        let due = || self.now + self.rng.within(ELECTION..2 * ELECTION);
        if self.now < *self.election.get_or_insert_with(due) {
            return;
        }
        self.election = None;
        let well = self.well();
        if well.len() >= MAJORITY {
            let next = self.rng.pick(&well);
            self.lead(next);
            return;
        }
        // A leader that no majority answers gives up.
        if let Some(leader) = self.leader.filter(|leader| !self.members[*leader].is_still) {
            self.leader = None;
            self.step_down(leader);
        }
    }

    /// Makes a member the leader of the next term.
    fn lead(&mut self, leader: usize) {
        if let Some(before) = self.leader {
            // The successor has the first ones of these, or none.
            let last = mem::take(&mut self.members[before].proposed);
            let kept = usize::try_from(self.rng.below(1 + last.len() as u64)).unwrap_or(0);
            last.into_iter()
                .take(kept)
                .for_each(|(origin, proposal)| self.append(origin, proposal));
        }
        self.step_down(leader);
        self.term += 1;
        self.leader = Some(leader);
        self.members[leader].leads = Some(self.term);
        self.append(Origin { member: leader, caller: None }, Proposal::Nothing);
        let term = self.term;
        self.say(format_args!("member {leader} leads in term {term}"));
    }

    pub(super) fn leader(&self) -> Option<usize> {
        self.leader
    }

    /// Cuts a member off from the others.
    pub(super) fn cut_off(&mut self, member: usize, until: Micros) {
        let member = &mut self.members[member];
        member.cut_until = until.max(member.cut_until);
    }

    /// Lets a member apply what is committed so much later.
    pub(super) fn slow_down(&mut self, member: usize, by: Micros, until: Micros) {
        self.members[member].slow = (by, until);
    }

    /// Refuses releases.
    pub(super) fn deny(&mut self, until: Micros) {
        self.denied_until = until.max(self.denied_until);
    }

    /// Hands the office to another member, if there is one.
    pub(super) fn move_leader(&mut self, to: usize) -> bool {
        let moves = self.in_office().is_some_and(|leader| leader != to) && self.is_well(to);
        if moves {
            self.lead(to);
        }
        moves
    }

    /// A member was cut off for long enough to ask for an election, which the others cannot refuse.
    pub(super) fn disturb(&mut self) {
        if let Some(leader) = self.leader.take() {
            self.step_down(leader);
            self.election = Some(self.now + self.rng.within(1_000..ELECTION));
        }
    }

    fn learn(&mut self) {
        for member in 0..self.members.len() {
            let is_former = self.members[member].leads.is_some() && self.leader != Some(member);
            let [chance, alone] = LEARNS;
            let chance = if self.is_well(member) { chance } else { alone };
            if is_former && !self.members[member].is_still && self.rng.chance(chance) {
                self.step_down(member);
            }
        }
    }

    fn step_down(&mut self, member: usize) {
        let state = &mut self.members[member];
        if state.leads.take().is_none() {
            return;
        }
        let ended = state.ended();
        state.ends = None;
        state.proposed.clear();
        self.say(format_args!("member {member} no longer leads"));
        // Leases that have ended by its clock, although the successor may have renewed them.
        if self.rng.chance(500_000) {
            let origin = Origin { member, caller: None };
            self.proposals.extend(ended.into_iter().map(|lease| (origin, Proposal::Revoke(lease))));
        }
    }

    fn end_leases(&mut self) {
        let Some(leader) = self.in_office().filter(|_| self.now >= self.next_check) else { return };
        self.next_check = self.now + LEASE_CHECK;
        let origin = Origin { member: leader, caller: None };
        let ended = self.members[leader].ended().into_iter();
        self.proposals.extend(ended.map(|lease| (origin, Proposal::Revoke(lease))));
    }

    fn commit(&mut self) {
        for (origin, proposal) in mem::take(&mut self.proposals) {
            match self.followed_by(origin.member) {
                Some(leader) => self.members[leader].proposed.push((origin, proposal)),
                None => self.proposals.push((origin, proposal)),
            }
        }
        if let Some(leader) = self.in_office() {
            let proposed = mem::take(&mut self.members[leader].proposed);
            proposed.into_iter().for_each(|(origin, proposal)| self.append(origin, proposal));
        }
    }

    fn append(&mut self, origin: Origin, proposal: Proposal) {
        self.log.push(Rc::new(LogEntry { term: self.term, at: self.now, origin, proposal }));
    }

    /// Applies what the member has received.
    fn apply(&mut self, at: usize) {
        while self.is_well(at) {
            let member = &mut self.members[at];
            let (slow, until) = member.slow;
            let usual = if member.leads.is_some() { 0 } else { member.delay };
            let delay = if self.now < until { slow } else { usual };
            let next = self.log.get(member.applied);
            let Some(entry) = next.filter(|entry| entry.at + delay <= self.now) else { return };
            let entry = Rc::clone(entry);
            member.applied += 1;
            member.term = entry.term;
            let (before, header) = (member.data.revision, header(at, entry.term, 0));
            let lags = self.rng.chance(100_000).then(|| member.data.clone());
            let answer = member.data.apply(&entry.proposal, header);
            member.follow_leases(&entry, answer.is_ok());
            let changes = member.data.revision != before;
            if changes && member.shown.as_ref().is_none_or(|(_, until)| self.now >= *until) {
                member.shown = lags.map(|data| (data, self.now + self.rng.within(500..3_000)));
            }
            if self.leader == Some(at) {
                for (key, _) in &member.data.changes {
                    self.denied.remove(&key[..]);
                }
                let revision = member.data.revision;
                self.say(format_args!("{:?} commits revision {revision}", entry.proposal));
            }
            if changes {
                self.notify(at);
            }
            if let Some(caller) = entry.origin.caller.filter(|_| entry.origin.member == at) {
                self.answer(caller, answer);
            }
        }
    }

    /// Sends the events of the last request. Reads may show them a little later.
    fn notify(&mut self, at: usize) {
        let header = Some(self.header(at));
        let member = &self.members[at];
        let all = member
            .watches
            .iter()
            .map(|((caller, id), watch)| (*caller, *id, member.data.events(watch)));
        let all: Vec<_> = all.filter(|(.., events)| !events.is_empty()).collect();
        for (caller, watch_id, events) in all {
            let message = WatchResponse { header, watch_id, events, ..WatchResponse::default() };
            self.send(caller, &message);
        }
    }

    fn renew(&mut self) {
        for renewal in mem::take(&mut self.renewals) {
            let leader = self.followed_by(renewal.member);
            let leader = leader.map(|leader| &mut self.members[leader]);
            let ttl = leader.filter(|leader| !leader.is_still).and_then(|leader| {
                let ends = leader.ends.as_mut()?;
                let Some(end) = ends.get_mut(&renewal.lease) else { return Some(0) };
                // One that has ended is answered after its keys are deleted.
                let ttl =
                    leader.data.leases.get(&renewal.lease).filter(|_| *end > leader.clock)?.ttl;
                *end = leader.clock + SECOND * ttl.unsigned_abs();
                Some(ttl)
            });
            match ttl {
                Some(ttl) => {
                    let header = Some(renewal.header);
                    self.send(renewal.caller, &LeaseTtlResponse { header, ttl });
                }
                None => self.renewals.push(renewal),
            }
        }
    }

    /// Starts the process of a member again. Its connections are gone, and its data stays.
    pub(super) fn restart(&mut self, at: usize) {
        self.wires.retain(|_, (member, _)| *member != at);
        self.proposals.retain(|(origin, _)| origin.member != at);
        self.renewals.retain(|renewal| renewal.member != at);
        if self.leader == Some(at) {
            self.leader = None;
        }
        let member = &mut self.members[at];
        member.watches.clear();
        member.proposed.clear();
        (member.leads, member.ends, member.is_removed) = (None, None, false);
    }

    /// Removes a member from the cluster if the others have a majority without it.
    pub(super) fn remove(&mut self, at: usize) -> bool {
        let is_enough = self.well().iter().filter(|member| **member != at).count() >= MAJORITY;
        self.members[at].is_removed |= is_enough;
        is_enough
    }

    /// Ends all watches of a member, as if its data had been compacted and they had been slow.
    pub(super) fn compact(&mut self, at: usize) {
        let header = self.header(at);
        for (caller, watch_id) in mem::take(&mut self.members[at].watches).into_keys() {
            let (header, canceled, compact_revision) = (Some(header), true, header.revision);
            let of_it = WatchResponse { header, watch_id, canceled, ..WatchResponse::default() };
            self.send(caller, &WatchResponse { compact_revision, ..of_it });
        }
    }

    /// Returns the keys that exist.
    fn keys(&self) -> impl Iterator<Item = &KeyValue> {
        let newest = self.members.iter().max_by_key(|member| member.applied);
        newest.into_iter().flat_map(|member| member.data.keys.values())
    }

    /// Returns the keys that clients left behind, with their values.
    pub(super) fn left(&self) -> Vec<String> {
        // The keys of a session that was lost stay until the members notice that, too.
        if self.now < self.settled {
            return Vec::new();
        }
        self.keys().map(|kv| format!("{}: {}", text(&kv.key), text(&kv.value))).collect()
    }

    /// Returns the holders, each with the name of its lock: the first claims, as far as they fit.
    fn holders(&self) -> Vec<(String, &KeyValue)> {
        let mut queues: BTreeMap<String, Vec<&KeyValue>> = BTreeMap::new();
        for kv in self.keys() {
            if let Some(name) = name_of(&kv.key) {
                queues.entry(name).or_default().push(kv);
            }
        }
        let mut holders = Vec::new();
        for (name, mut queue) in queues {
            queue.sort_by_key(|kv| kv.create_revision);
            let mut taken = 0;
            let fit = queue.into_iter().take_while(|kv| {
                let (weight, capacity) = size_of(&kv.value);
                taken += weight;
                taken <= capacity
            });
            holders.extend(fit.map(|kv| (name.clone(), kv)));
        }
        holders
    }

    pub(super) fn held(&self) -> Vec<Held> {
        let leader = self.leader.map(|leader| &self.members[leader]);
        let grant = |(name, kv): (String, &KeyValue)| {
            let end = leader.and_then(|leader| leader.ends.as_ref()?.get(&kv.lease));
            let remaining = end.zip(leader).map(|(end, leader)| end.saturating_sub(leader.clock));
            let first = kv.create_revision.unsigned_abs() * TOKENS;
            let tokens = (first, first + TOKENS - 1);
            let waits = self.now < self.denied_until + REPEATED;
            let is_denied = waits && self.denied.contains(&kv.key[..]);
            let text = (!is_denied).then(|| text(&kv.value));
            let process = text.and_then(|text| process_in(&text));
            Held { name, tokens, remaining: remaining.unwrap_or(0), process }
        };
        self.holders().into_iter().map(grant).collect()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the name of the lock of a key, unless it is the marker of a session.
fn name_of(key: &[u8]) -> Option<String> {
    let (name, _) = str::from_utf8(key).ok()?.strip_prefix("/sim/")?.split_once('/')?;
    (name != "%session").then(|| name.replace("%2F", "/").replace("%25", "%"))
}

/// Returns the weight of a claim, and the capacity of its lock.
fn size_of(value: &[u8]) -> (u64, u64) {
    const ALL: u64 = 1 << 30;
    let mode = value.split(|byte| *byte == b' ').next().and_then(|mode| str::from_utf8(mode).ok());
    match mode.unwrap_or_default().split_once('/') {
        Some((weight, capacity)) => {
            (weight.parse().unwrap_or(ALL), capacity.parse().unwrap_or(ALL))
        }
        None if mode == Some("s") => (1, ALL),
        None => (ALL, ALL),
    }
}

fn member_id(member: usize) -> u64 {
    0xe1 + member as u64
}

fn header(member: usize, raft_term: u64, revision: i64) -> Header {
    Header { cluster_id: 0xc1, member_id: member_id(member), revision, raft_term }
}
