//! Plays random sequences of steps by two clients on locks of all kinds.

use dlock_core::{ClaimId, ErrorKind, Guard, LockName, Locks, Mode, Owner, Released};
use proptest::prelude::*;

use crate::{
    Stop, Verdict,
    context::Cx,
    model::{Member, Model, Standing},
    stop::{ensure, ensure_eq},
};

const PERMITS: u32 = 3;

/// One step of one of two clients.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GuardStep {
    /// Tries to take a lock.
    Try { kind: Kind, client: usize },
    /// Releases the guard at index `nth`, if it exists.
    Release { nth: usize },
    /// Downgrades the guard at index `nth`.
    Downgrade { nth: usize },
}

/// The kind of lock that a step tries. Mutex, reader, writer and owner share one name; semaphores
/// have another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Mutex,
    Direct,
    Fair,
    Reader,
    Writer,
    Owner,
    Permits(u32),
    Several,
}

/// Returns a strategy for sequences of tries and releases.
pub(crate) fn sequences(permits: bool, steps: usize) -> impl Strategy<Value = Vec<GuardStep>> {
    let kind = prop_oneof![
        Just(Kind::Mutex),
        Just(Kind::Direct),
        Just(Kind::Fair),
        Just(Kind::Reader),
        Just(Kind::Reader),
        Just(Kind::Writer),
        Just(Kind::Owner),
        Just(Kind::Several),
        (1..=PERMITS).prop_map(move |n| if permits { Kind::Permits(n) } else { Kind::Reader }),
    ];
    let step = prop_oneof![
        5 => (kind, 0..2usize).prop_map(|(kind, client)| GuardStep::Try { kind, client }),
        3 => (0..6usize).prop_map(|nth| GuardStep::Release { nth }),
        1 => (0..6usize).prop_map(|nth| GuardStep::Downgrade { nth }),
    ];
    prop::collection::vec(step, 1..=steps)
}

/// Plays the steps on new names.
pub(crate) async fn run(cx: Cx, steps: Vec<GuardStep>) -> Verdict {
    let mut play = GuardPlay {
        fair: crate::case::Need::Fifo.missing_in(&cx.guarantees(), None).is_none(),
        clients: [cx.locks().await?, cx.locks().await?],
        owners: [Owner::new(), Owner::new()],
        names: [cx.name("one"), cx.name("two"), cx.name("permits")],
        models: [Model::default(), Model::default(), Model::default()],
        held: Vec::new(),
    };
    for step in steps {
        match step {
            GuardStep::Try { kind, client } => play.try_it(kind, client).await?,
            GuardStep::Release { nth } if nth < play.held.len() => play.release(nth).await?,
            GuardStep::Downgrade { nth } if nth < play.held.len() => play.downgrade(nth).await?,
            GuardStep::Release { .. } | GuardStep::Downgrade { .. } => {}
        }
        for held in &play.held {
            held.guard.check()?;
        }
    }
    while !play.held.is_empty() {
        play.release(0).await?;
    }
    Ok(())
}

struct GuardPlay {
    fair: bool,
    clients: [Locks; 2],
    owners: [Owner; 2],
    names: [LockName; 3],
    models: [Model; 3],
    held: Vec<HeldGuard>,
}

/// A guard, and the id of its claim in the model.
struct HeldGuard {
    guard: Guard,
    kind: Kind,
    client: usize,
    id: ClaimId,
}

impl GuardPlay {
    async fn try_it(&mut self, kind: Kind, client: usize) -> Verdict {
        let guard = self.take(kind, client).await?;
        let again = self.held.iter().find(|h| kind == Kind::Owner && same(h, kind, client));
        let (id, expected) = match again {
            Some(held) => (held.id, true),
            None => {
                let id = ClaimId::random();
                (id, self.fits(kind, id))
            }
        };
        ensure_eq!(guard.is_some(), expected, "{kind:?} of client {client} is granted");
        if let Some(guard) = guard {
            self.held.push(HeldGuard { guard, kind, client, id });
        }
        if kind == Kind::Owner {
            let entries = self.held.iter().filter(|h| same(h, kind, client)).count();
            let lock = self.clients[client].reentrant(&self.names[0])?;
            ensure_eq!(lock.hold_count(&self.owners[client]), entries, "the entries");
        }
        Ok(())
    }

    async fn take(&self, kind: Kind, client: usize) -> Result<Option<Guard>, Stop> {
        let (locks, [one, two, permits]) = (&self.clients[client], &self.names);
        Ok(match kind {
            Kind::Fair if self.fair => locks.fair(one)?.try_lock().await?,
            Kind::Mutex | Kind::Fair => locks.mutex(one)?.try_lock().await?,
            Kind::Direct => locks.without_handoff().mutex(one)?.try_lock().await?,
            Kind::Reader => locks.rw(one)?.read().try_lock().await?,
            Kind::Writer => locks.rw(one)?.write().try_lock().await?,
            Kind::Owner => locks.reentrant(one)?.try_lock_as(&self.owners[client]).await?,
            Kind::Permits(n) => locks.semaphore(permits, PERMITS)?.try_acquire_many(n).await?,
            Kind::Several => locks.multi([one, two])?.try_lock().await?,
        })
    }

    /// Whether the model grants the claim. A multi-lock is granted in all of its names or in none.
    fn fits(&mut self, kind: Kind, id: ClaimId) -> bool {
        let (models, mode) = match kind {
            Kind::Permits(n) => (&mut self.models[2..], Mode::Permits { n, of: PERMITS }),
            Kind::Several => (&mut self.models[..2], Mode::Exclusive),
            Kind::Reader => (&mut self.models[..1], Mode::Shared),
            _ => (&mut self.models[..1], Mode::Exclusive),
        };
        let member = Member { id, mode, held: false, lease: 1, until: 1, last: false };
        let fits = models.iter_mut().all(|m| m.acquire(member, false, 0) == Standing::Held);
        if !fits {
            self.forget(id);
        }
        fits
    }

    async fn release(&mut self, nth: usize) -> Verdict {
        let HeldGuard { guard, id, .. } = self.held.remove(nth);
        ensure_eq!(guard.release().await?, Released::Released, "the release");
        if self.held.iter().all(|held| held.id != id) {
            self.forget(id);
        }
        Ok(())
    }

    async fn downgrade(&mut self, nth: usize) -> Verdict {
        let held = &mut self.held[nth];
        let token = held.guard.token();
        let result = held.guard.downgrade().await;
        if held.kind == Kind::Writer {
            result?;
            held.kind = Kind::Reader;
            self.models[0].renew(held.id, Mode::Shared, 1, false, 0);
        } else {
            let error = result.err().ok_or("what is no writer is downgraded")?;
            ensure_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        }
        ensure!(held.guard.token() == token, "another token after the downgrade");
        Ok(())
    }

    fn forget(&mut self, id: ClaimId) {
        for model in &mut self.models {
            model.release(id, 0);
        }
    }
}

fn same(held: &HeldGuard, kind: Kind, client: usize) -> bool {
    held.kind == kind && held.client == client
}
