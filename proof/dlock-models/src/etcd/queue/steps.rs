//! The steps of clients and store: keys, and what a member shows of them.

use super::{
    Action, CLIENTS, Client, EtcdQueue, Key, Letter, Name, PERMIT_COUNT, Phase, Rule, Session,
    State, Watch, Watched,
};

impl EtcdQueue {
    pub(super) fn has(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    fn slot(&self, at: usize) -> usize {
        self.setup.sessions[at]
    }

    pub(super) fn session(&self, state: &State, at: usize) -> Session {
        state.sessions[self.slot(at)]
    }

    fn creation(&self, state: &State, at: usize) -> Letter {
        let session = self.session(state, at);
        let (slot, epoch) = (state.clients[at].slot, session.marker);
        Letter::Create { client: at, slot, session: session.number, epoch }
    }

    /// The session in which the client searches its key.
    fn searched(&self, state: &State, at: usize) -> Option<u8> {
        self.has(Rule::OwnLease).then(|| self.session(state, at).number)
    }

    /// A create transaction takes effect and is answered.
    fn create(&self, state: &mut State, at: usize) {
        let slot = state.clients[at].slot;
        let own = match state.find(at, slot, self.searched(state, at)) {
            Some(key) => key.created,
            None => state.create(at, slot, self.session(state, at).number),
        };
        self.stand(state, at, own);
    }

    /// Goes on from the place that the store has shown.
    fn stand(&self, state: &mut State, at: usize, own: u8) {
        let now = state.rev;
        self.decide(state, at, own, now, None);
    }

    /// Decides by what the member shows at this revision.
    fn decide(&self, state: &mut State, at: usize, own: u8, rev: u8, watch: Option<Watch>) {
        let view = state.view(rev, own, &self.setup.needs);
        state.clients[at].seen = rev;
        let need = self.setup.needs[at];
        if !view.is_there && self.has(Rule::OwnKey) {
            // It is lost; the client makes another claim.
            state.clients[at].phase = Phase::Asking;
        } else if view.taken + need <= PERMIT_COUNT {
            // At its create revision there is no claim behind it.
            let waited = rev > own && self.has(Rule::Mark);
            let found = !state.clients[at].phase.waits() && !self.has(Rule::MarkFound);
            let marks = self.setup.permits && waited && !found;
            if !self.setup.permits {
                state.tokens.add(own);
            }
            state.clients[at].phase = Phase::Held { own, marks };
        } else {
            let first = self.setup.permits && view.taken <= PERMIT_COUNT;
            let watched = match view.before {
                Some(before) if !first => Watched::Key(before),
                _ => Watched::Range,
            };
            let alone = view.ahead == 1 || !self.has(Rule::OnlyOne);
            let sure = !self.setup.permits && alone;
            state.clients[at].phase = match watch.filter(|watch| watch.watched == watched) {
                Some(watch) => Phase::Watching { own, watch: Watch { sure, ..watch } },
                None => Phase::Placed { own, watched, applied: rev, blind: false },
            };
        }
    }

    fn watch(&self, state: &mut State, at: usize, from: u8) {
        let client = &mut state.clients[at];
        let Phase::Placed { own, watched, blind, .. } = client.phase else { return };
        let watch = Watch { watched, from, sure: false };
        let seen = if self.has(Rule::SeenBound) { client.seen } else { 0 };
        let least = if self.has(Rule::EventBound) { from.max(seen) } else { seen };
        client.phase = match blind {
            true => Phase::Watching { own, watch },
            false => Phase::Reading { own, watch: Some(watch), least },
        };
    }

    fn event(&self, state: &mut State, at: usize) {
        let Phase::Watching { own, watch } = state.clients[at].phase else { return };
        let Some(rev) = self.next_event(state, own, watch) else { return };
        // The watch of its own key reports what has happened before.
        let lost = state.deleted(own).is_some_and(|deleted| deleted < rev);
        if watch.sure && !(lost && self.has(Rule::OwnFirst)) {
            state.tokens.add(own);
            state.clients[at].phase = Phase::Held { own, marks: false };
            return;
        }
        let client = &mut state.clients[at];
        if self.setup.permits && watch.watched != Watched::Range && !self.has(Rule::FirstReads) {
            let (watched, applied) = (Watched::Range, rev);
            client.phase = Phase::Placed { own, watched, applied, blind: true };
            return;
        }
        let least = if self.has(Rule::EventBound) { rev.max(client.seen) } else { client.seen };
        let watch = Some(Watch { from: rev, ..watch });
        client.phase = Phase::Reading { own, watch, least };
    }

    /// Returns the revision of the first change that counts and that this watch reports next.
    fn next_event(&self, state: &State, own: u8, watch: Watch) -> Option<u8> {
        let after = if self.has(Rule::LaterEvents) { watch.from.max(own) } else { watch.from };
        state.event(own, watch.watched, after)
    }

    fn fail_over(&self, state: &mut State, at: usize, applied: u8) {
        let client = &mut state.clients[at];
        if let Phase::Watching { watch, .. } = &mut client.phase
            && !self.has(Rule::NewWatch)
        {
            watch.from = u8::MAX;
            return;
        }
        let Some(own) = client.phase.own() else { return };
        let watched = match client.phase {
            Phase::Placed { watched, .. } => Some(watched),
            Phase::Watching { watch, .. } => Some(watch.watched),
            Phase::Reading { watch, .. } => watch.map(|watch| watch.watched),
            _ => return,
        };
        let least = if self.has(Rule::SeenBound) { client.seen } else { 0 };
        client.phase = match watched {
            Some(watched) => {
                Phase::Placed { own, watched, applied, blind: !self.has(Rule::ReadAgain) }
            }
            None => Phase::Reading { own, watch: None, least },
        };
    }

    fn raise(&self, state: &mut State, at: usize) {
        let full = state.full;
        let session = &mut state.sessions[self.slot(at)];
        if !full {
            session.puts += 1;
            session.marker = session.puts;
        } else if self.has(Rule::RaiseWhenFull) {
            session.marker = 0;
        }
    }

    fn search(&self, state: &mut State, at: usize) {
        let client = state.clients[at];
        match (state.find(at, client.slot, self.searched(state, at)), client.wanted) {
            (Some(key), true) => self.stand(state, at, key.created),
            (Some(key), false) => {
                let own = key.created;
                state.clients[at].phase = Phase::Leaving { own };
            }
            (None, true) => state.clients[at].phase = Phase::Asking,
            (None, false) => self.finish(state, at),
        }
    }

    fn cancel(&self, state: &mut State, at: usize) {
        state.clients[at].wanted = false;
        let phase = state.clients[at].phase;
        match (phase, phase.own()) {
            (_, Some(own)) => {
                state.clients[at].phase = Phase::Leaving { own };
            }
            (Phase::Unsure | Phase::Searching, _) if self.has(Rule::SeeThrough) => {}
            _ => self.finish(state, at),
        }
    }

    /// The next claim has the same slot.
    fn finish(&self, state: &mut State, at: usize) {
        let client = &mut state.clients[at];
        if client.retired && self.has(Rule::FreshSlot) {
            client.slot += 1;
        }
        (client.retired, client.wanted, client.phase) = (false, false, Phase::Idle);
        (client.wants, client.seen) = (client.wants + 1, 0);
    }

    fn hand_in(&self, state: &mut State, letter: Letter) {
        state.late.retain(|other| *other != letter);
        match letter {
            Letter::Create { client, slot, session, epoch } => {
                let now = self.session(state, client);
                // The epoch of a session that its clients have abandoned was not ended.
                let open = session != now.number || epoch == now.marker || !self.has(Rule::Epoch);
                let alive = session > now.dead;
                let is_there = state.find(client, slot, Some(session)).is_some();
                if open && alive && !state.full && !is_there {
                    state.create(client, slot, session);
                }
            }
            Letter::Delete { client, slot, session } => {
                state.delete_in(client, slot, session);
            }
        }
    }

    fn end_session(&self, state: &mut State, slot: usize) {
        let session = &mut state.sessions[slot];
        (session.number, session.marker) = (session.number + 1, 0);
        for at in (0..CLIENTS).filter(|at| self.slot(*at) == slot) {
            match state.clients[at].phase {
                Phase::Idle => {}
                Phase::Held { .. } => self.finish(state, at),
                _ if state.clients[at].wanted => state.clients[at].phase = Phase::Asking,
                _ => self.finish(state, at),
            }
        }
    }

    fn session_ends(&self, state: &mut State, slot: usize) {
        state.sessions[slot].dead += 1;
        let dead = state.sessions[slot].dead;
        state.delete(|key| self.slot(key.client) == slot && key.session <= dead);
    }

    /// Returns the next step of this client that needs no other client and no fault.
    pub(super) fn own_step(&self, state: &State, at: usize) -> Option<Action> {
        match state.clients[at].phase {
            Phase::Idle | Phase::Held { marks: false, .. } => None,
            Phase::Held { .. } => (!state.full).then_some(Action::Mark(at)),
            Phase::Asking if state.full => None,
            Phase::Asking if self.session(state, at).marker == 0 && self.has(Rule::MarkerFirst) => {
                Some(Action::PutMarker(at))
            }
            Phase::Asking => Some(Action::Create(at)),
            Phase::Unsure => Some(Action::Raise(at)),
            Phase::Searching => Some(Action::Search(at)),
            Phase::Placed { .. } => Some(Action::Watch(at, state.rev)),
            Phase::Reading { .. } => Some(Action::Read(at, state.rev)),
            Phase::Watching { own, watch } => {
                self.next_event(state, own, watch).map(|_| Action::Event(at))
            }
            Phase::Leaving { .. } => Some(Action::Delete(at)),
        }
    }

    /// Runs all pending steps without faults. Returns whether a client then holds the lock, or no
    /// client waits; and no client waits for permits that are free.
    pub(super) fn comes_to_rest(&self, state: &State) -> bool {
        if !state.clients.iter().any(|client| client.phase.waits()) {
            return true;
        }
        let mut state = state.clone();
        loop {
            let ended = (0..CLIENTS).find(|at| self.is_dying(&state, *at));
            let next = match ended {
                Some(slot) => Some(Action::SessionEnds(slot)),
                None => (0..CLIENTS).find_map(|at| self.own_step(&state, at)),
            };
            let Some(next) = next else { break };
            self.act(&mut state, next);
        }
        let mut waiting = (0..CLIENTS).filter(|at| state.clients[*at].phase.waits()).peekable();
        let held = state.clients.iter().any(|client| client.phase.holds());
        (held || waiting.peek().is_none()) && waiting.all(|at| !self.is_free_for(&state, at))
    }

    /// Whether the store has a session that its clients have abandoned.
    pub(super) fn is_dying(&self, state: &State, slot: usize) -> bool {
        state.sessions[slot].dead + 1 < state.sessions[slot].number
    }

    /// Whether the claims before this client's leave it enough permits.
    fn is_free_for(&self, state: &State, at: usize) -> bool {
        let (own, needs) = (state.clients[at].phase.own(), &self.setup.needs);
        let taken = own.map(|own| state.view(state.rev, own, needs).taken);
        taken.is_some_and(|taken| taken + needs[at] <= PERMIT_COUNT)
    }

    /// Whether all keys of this client have to wait.
    pub(super) fn is_queued(&self, state: &State, at: usize) -> bool {
        let mut keys = state.keys.iter().filter(|key| key.client == at && key.deleted.is_none());
        let needs = &self.setup.needs;
        keys.all(|key| state.view(state.rev, key.created, needs).taken + needs[at] > PERMIT_COUNT)
    }

    pub(super) fn act(&self, state: &mut State, action: Action) {
        match action {
            Action::Want(at) => {
                (state.clients[at].phase, state.clients[at].wanted) = (Phase::Asking, true);
            }
            Action::Create(at) => self.create(state, at),
            Action::CreateUnanswered(at) | Action::CreateLost(at) | Action::CreateLate(at) => {
                let creation = self.creation(state, at);
                match action {
                    Action::CreateUnanswered(_) => self.hand_in(state, creation),
                    Action::CreateLate(_) => state.send_late(creation),
                    _ => {}
                }
                state.faults.late -= 1;
                state.clients[at].phase = Phase::Unsure;
            }
            Action::CreateRefused(at) => state.clients[at].phase = Phase::Unsure,
            Action::PutMarker(at) => self.raise(state, at),
            Action::Raise(at) => {
                self.raise(state, at);
                state.clients[at].phase = Phase::Searching;
            }
            Action::Search(at) => self.search(state, at),
            Action::Watch(at, from) => self.watch(state, at, from),
            Action::Read(at, rev) => {
                if let Phase::Reading { own, watch, .. } = state.clients[at].phase {
                    self.decide(state, at, own, rev, watch);
                }
            }
            Action::Event(at) => self.event(state, at),
            Action::Mark(at) => {
                if let Phase::Held { own, .. } = state.clients[at].phase {
                    state.mark(own);
                    state.clients[at].phase = Phase::Held { own, marks: false };
                }
            }
            Action::Cancel(at) => self.cancel(state, at),
            Action::Leave(at) => {
                if let Phase::Held { own, .. } = state.clients[at].phase {
                    state.clients[at].phase = Phase::Leaving { own };
                    state.clients[at].wanted = false;
                }
            }
            Action::Delete(at) => {
                state.delete_in(at, state.clients[at].slot, self.searched(state, at));
                self.finish(state, at);
            }
            Action::DeleteLate(at) => {
                state.faults.late -= 1;
                let (slot, session) = (state.clients[at].slot, self.searched(state, at));
                state.send_late(Letter::Delete { client: at, slot, session });
                state.clients[at].retired = true;
            }
            Action::HandIn(letter) => self.hand_in(state, letter),
            Action::Break { client, all } => {
                state.faults.broken -= 1;
                let slot = self.slot(client);
                state.delete(|key| key.client == client || all && self.slot(key.client) == slot);
            }
            Action::FailOver(at, applied) => {
                state.faults.failovers -= 1;
                self.fail_over(state, at, applied);
            }
            Action::EndSession(slot) => {
                state.faults.ends -= 1;
                self.end_session(state, slot);
            }
            Action::SessionEnds(slot) => self.session_ends(state, slot),
            Action::RunFull => {
                state.faults.full -= 1;
                state.full = true;
            }
            Action::FreeSpace => state.full = false,
        }
        state.trim();
    }
}

/// The queue as a member shows it to a claim.
struct View {
    /// Whether the claim's own key is there.
    is_there: bool,
    /// The permits of the claims before it.
    taken: u8,
    /// The name of the key before its own.
    before: Option<Name>,
    /// The number of keys before its own.
    ahead: usize,
}

impl Key {
    fn name(&self) -> Name {
        Name { client: self.client, slot: self.slot, session: self.session }
    }
}

impl State {
    /// Returns the queue at this revision, for the claim with this create revision.
    fn view(&self, at_rev: u8, own: u8, needs: &[u8]) -> View {
        let there = |key: &&Key| key.created <= at_rev && key.deleted.is_none_or(|d| d > at_rev);
        let before = self.keys.iter().filter(there).filter(|key| key.created < own);
        View {
            is_there: self.keys.iter().filter(there).any(|key| key.created == own),
            taken: before.clone().map(|key| needs[key.client]).sum(),
            before: before.clone().max_by_key(|key| key.created).map(Key::name),
            ahead: before.count(),
        }
    }

    /// The key of this client in this slot, if it exists now: of this session, if one is given.
    pub(super) fn find(&self, client: usize, slot: u8, session: Option<u8>) -> Option<Key> {
        let mut keys = self.keys.iter().filter(|key| key.deleted.is_none());
        let of = |key: &&Key| session.is_none_or(|session| session == key.session);
        keys.find(|key| (key.client, key.slot) == (client, slot) && of(key)).copied()
    }

    /// The revision at which this key was deleted, if it was.
    pub(super) fn deleted(&self, created: u8) -> Option<u8> {
        self.keys.iter().find(|key| key.created == created)?.deleted
    }

    pub(super) fn create(&mut self, client: usize, slot: u8, session: u8) -> u8 {
        self.rev += 1;
        let created = self.rev;
        self.keys.push(Key { client, slot, session, created, marked: 0, deleted: None });
        created
    }

    /// Deletes all these keys at one revision.
    pub(super) fn delete(&mut self, which: impl Fn(&Key) -> bool) {
        let now = self.rev + 1;
        for key in self.keys.iter_mut().filter(|key| key.deleted.is_none() && which(key)) {
            key.deleted = Some(now);
            self.rev = now;
        }
    }

    /// Deletes the key of this client in this slot: of this session, if one is given.
    fn delete_in(&mut self, client: usize, slot: u8, session: Option<u8>) {
        let of = |key: &Key| session.is_none_or(|session| session == key.session);
        self.delete(|key| (key.client, key.slot) == (client, slot) && of(key));
    }

    pub(super) fn mark(&mut self, own: u8) {
        let there = |key: &&mut Key| key.created == own && key.deleted.is_none();
        if let Some(key) = self.keys.iter_mut().find(there) {
            self.rev += 1;
            key.marked = self.rev;
        }
    }

    /// Returns the revision of the first change after `after` that is reported next.
    pub(super) fn event(&self, own: u8, watched: Watched, after: u8) -> Option<u8> {
        let watched = |key: &&Key| match watched {
            Watched::Range => key.created < own,
            Watched::Key(name) => key.name() == name,
        };
        let changes =
            self.keys.iter().filter(watched).flat_map(|key| [Some(key.marked), key.deleted]);
        changes.flatten().filter(|rev| *rev > after).min()
    }

    /// Forgets the deleted keys that no client can learn of any more.
    pub(super) fn trim(&mut self) {
        if self.faults.failovers > 0 {
            // The next member of a client may still show all of them.
            return;
        }
        let oldest = |client: &Client| match client.phase {
            Phase::Watching { watch, .. } | Phase::Reading { watch: Some(watch), .. } => {
                client.seen.min(watch.from)
            }
            Phase::Placed { applied, .. } => client.seen.min(applied),
            _ => client.seen,
        };
        let waiting = self.clients.iter().filter(|client| client.phase.waits());
        let shown = waiting.map(oldest).min().unwrap_or(u8::MAX);
        self.keys.retain(|key| key.deleted.is_none_or(|deleted| deleted > shown));
    }

    fn send_late(&mut self, letter: Letter) {
        crate::check::send(&mut self.late, letter);
    }
}
