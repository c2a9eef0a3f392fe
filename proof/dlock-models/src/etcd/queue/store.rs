//! The store: keys, and what a member shows of them.

use super::{Client, Key, Letter, Name, Phase, State, Watched};

/// The queue as a member shows it to a claim.
pub(super) struct View {
    /// Whether the claim's own key is there.
    pub(super) is_there: bool,
    /// The permits of the claims before it.
    pub(super) taken: u8,
    /// The name of the key before its own.
    pub(super) before: Option<Name>,
    /// The number of keys before its own.
    pub(super) ahead: usize,
}

impl Key {
    fn name(&self) -> Name {
        Name { client: self.client, slot: self.slot, session: self.session }
    }
}

impl State {
    /// Returns the queue at this revision, for the claim with this create revision.
    pub(super) fn view(&self, at_rev: u8, own: u8, needs: &[u8]) -> View {
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
    pub(super) fn delete_in(&mut self, client: usize, slot: u8, session: Option<u8>) {
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

    pub(super) fn send_late(&mut self, letter: Letter) {
        crate::check::send(&mut self.late, letter);
    }
}
