//! Renewal: one task for each backend and process.
//!
//! Most locks are held for less than a third of their lease and never need a renewal, so a new
//! hold is only put on a list (*young*), where adding and removing costs a few nanoseconds. What
//! is still on the list when the task next looks, about once a second, moves to lists ordered by
//! due time (*old*). So 100,000 held locks are one task, one timer and ordered memory, and a lock
//! that is taken a million times a second does not churn the order.

mod due;
mod order;
mod parting;
mod told;

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::sync::broadcast::Receiver;

use self::{
    due::{Batch, Due},
    order::Order,
};
use super::{
    events::{self, Steps},
    hold::Hold,
};
use crate::{
    Clock, DynBackend, Error, ErrorKind, Instant, LockName, Renewed, StoreEvent,
    guard::Ended,
    sync::{
        Mutex, Notify,
        atomic::{AtomicBool, AtomicU64, Ordering},
        time,
    },
};

/// How many claims a batch has at the most.
const BATCH: usize = 500;
/// Claims that fall due this much later, but no more than a 16th of their lease, join a batch.
const LOOK_AHEAD: Duration = Duration::from_millis(500);
/// The longest sleep: timers stand still while the machine is suspended, leases do not.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
const NEVER: u64 = u64::MAX;

/// The books of the renewal task.
pub(crate) struct Keeper {
    clock: Clock,
    books: Mutex<Books>,
    /// When the task will look next, in nanoseconds.
    next_look: AtomicU64,
    wake: Notify,
    removed: Notify,
    /// Wakes who would wait for ever once the task has ended.
    ended: Notify,
    /// Somebody waits until no lock is held.
    watched: AtomicBool,
    closed: AtomicBool,
    stopped: AtomicBool,
}

#[derive(Default)]
struct Books {
    young: Vec<Option<Arc<Hold>>>,
    vacant: Vec<usize>,
    old: Order,
    steps: Steps,
}

impl Keeper {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            clock,
            books: Mutex::default(),
            next_look: AtomicU64::new(NEVER),
            wake: Notify::new(),
            removed: Notify::new(),
            ended: Notify::new(),
            watched: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
        }
    }

    /// Books a new hold.
    pub(super) fn add(&self, hold: &Arc<Hold>) {
        let place = &hold.place;
        let mut books = self.books.lock();
        let cut = books.cut(hold, hold.began());
        let (now, mut due) = (self.clock.now(), hold.renewal_due());
        let over = !cut.is_zero() && hold.shorten(cut, now);
        if !cut.is_zero() {
            due = due.min(now);
        }
        place.due.store(due.as_nanos(), Ordering::Relaxed);
        let index = match books.vacant.pop() {
            Some(index) => {
                books.young[index] = Some(Arc::clone(hold));
                index
            }
            None => {
                books.young.push(Some(Arc::clone(hold)));
                books.young.len() - 1
            }
        };
        place.set(index, false);
        // Under the lock, so that the task can't set a later look after it missed this one.
        if due.as_nanos() < self.next_look.load(Ordering::Relaxed) {
            self.next_look.store(due.as_nanos(), Ordering::Relaxed);
            drop(books);
            self.wake.notify_one();
        } else {
            drop(books);
        }
        if over {
            hold.lose(Ended::ClockStep);
        }
    }

    /// Takes a hold that has ended out of the books. Called once for each hold.
    pub(super) fn remove(&self, hold: &Hold) {
        let removed = self.books.lock().take(hold);
        drop(removed);
        if self.watched.load(Ordering::SeqCst) {
            self.removed.notify_waiters();
        }
    }

    /// How many locks are held. It looks at each: for people and shutdown only.
    pub(crate) fn len(&self) -> usize {
        self.books.lock().all().count()
    }

    /// Waits until no lock is held.
    pub(crate) async fn until_empty(&self) {
        loop {
            let mut removed = std::pin::pin!(self.removed.notified());
            removed.as_mut().enable();
            self.watched.store(true, Ordering::SeqCst);
            if self.len() == 0 {
                return;
            }
            removed.await;
        }
    }

    /// For how long this process has held the lock of this name, if it does. It looks at a thousand
    /// holds at the most: for people only.
    pub(crate) fn held_for(&self, name: &LockName) -> Option<Duration> {
        let hold = self.hold_of(name)?;
        Some(self.clock.now().since(hold.granted_at()))
    }

    /// The same, if it is to be told that somebody here waits for it: once for each hold.
    pub(super) fn tells_held_for(&self, name: &LockName) -> Option<Duration> {
        let hold = self.hold_of(name)?;
        let first = !hold.told.swap(true, Ordering::Relaxed);
        first.then(|| self.clock.now().since(hold.granted_at()))
    }

    fn hold_of(&self, name: &LockName) -> Option<Arc<Hold>> {
        let books = self.books.lock();
        let mut some = books.all().take(1000);
        some.find(|hold| hold.name() == name && hold.is_running()).cloned()
    }

    /// Ends the task.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// Whether the task has ended, because of `close` or with its runtime.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Waits until the task has ended.
    pub(crate) async fn until_stopped(&self) {
        let mut ended = std::pin::pin!(self.ended.notified());
        ended.as_mut().enable();
        if !self.is_stopped() {
            ended.await;
        }
    }

    /// Takes what is due out of the books, in batches, and sets the time of the next look.
    fn collect(&self, backend: &DynBackend) -> Due {
        let now = self.clock.now();
        let mut due = Due::default();
        let mut books = self.books.lock();
        books.promote();
        let horizon = now.saturating_add(LOOK_AHEAD).as_nanos();
        let ready: Vec<Arc<Hold>> = books
            .old
            .until(horizon)
            .filter(|hold| {
                let early = Instant::from_nanos(hold.due()).since(now);
                early.is_zero() || (hold.may_go_early() && early <= hold.lease() / 16)
            })
            .cloned()
            .collect();
        for hold in ready {
            if !hold.is_running() {
                // Whoever ended it is about to remove it.
                let soon = LONGEST_SLEEP.min(hold.lease() / 12);
                books.move_to(&hold, now.saturating_add(soon));
                continue;
            }
            if now >= hold.valid_until() {
                due.late.push(hold);
                continue;
            }
            let in_hand = hold.renewing.load(Ordering::Relaxed);
            let renewal = if in_hand { None } else { hold.renewal(now) };
            books.move_to(&hold, hold.valid_until());
            if hold.is_waited_for_by_its_own(now) {
                due.own.push(Arc::clone(&hold));
            }
            if let Some(renewal) = renewal {
                hold.renewing.store(true, Ordering::Relaxed);
                due.add(hold, renewal, backend);
            }
        }
        self.next_look.store(books.old.first().unwrap_or(NEVER), Ordering::Relaxed);
        due
    }

    /// Books the answer to a batch.
    fn settle(&self, batch: Batch, answers: Result<Vec<Renewed>, Error>) {
        let now = self.clock.now();
        let (mut lost, mut parted, mut failed) = (Vec::new(), Vec::new(), 0);
        {
            let mut books = self.books.lock();
            for (i, (hold, renewal)) in batch.holds.iter().zip(&batch.renewals).enumerate() {
                match answers.as_ref().map(|answers| answers.get(i)) {
                    // Both stay in hand until they are over.
                    Ok(Some(Renewed::Kept)) if hold.last.load(Ordering::Relaxed) => {
                        parted.push(Arc::clone(hold));
                        continue;
                    }
                    // What the clock did meanwhile is not known, so it is renewed once more.
                    Ok(Some(Renewed::Kept)) if !books.cut(hold, batch.sent).is_zero() => {
                        books.move_to(hold, now);
                    }
                    Ok(Some(Renewed::Kept)) => {
                        hold.renewed(batch.sent, renewal.lease);
                        books.move_to(hold, hold.renewal_due());
                    }
                    Ok(None | Some(Renewed::Unknown)) | Err(_) => {
                        failed += 1;
                        hold.doubt();
                        books.move_to(hold, hold.retry_due(now));
                    }
                    Ok(Some(gone)) => {
                        lost.push((Arc::clone(hold), *gone));
                        continue;
                    }
                }
                hold.renewing.store(false, Ordering::Relaxed);
            }
            self.next_look.fetch_min(books.old.first().unwrap_or(NEVER), Ordering::Relaxed);
        }
        #[cfg(feature = "metrics")]
        if let Some(hold) = batch.holds.first() {
            let kept = batch.holds.len() - failed - lost.len();
            hold.engine.meter.renewed(kept, lost.len(), failed);
        }
        for hold in parted {
            hold.parted();
        }
        for (hold, gone) in lost {
            hold.lose(if gone == Renewed::Forgotten { Ended::StoreReset } else { Ended::Revoked });
        }
        if let Some(hold) = batch.holds.first() {
            hold.engine.failure.look_at(&answers);
        }
        let untold = || Error::new(ErrorKind::Unavailable, "the store can't tell for these claims");
        if let Some(error) = answers.err().or_else(|| (failed > 0).then(untold)) {
            tracing::warn!(target: "dlock", %error, claims = failed, "renewal failed, will be retried");
        }
    }
}

impl Books {
    /// Moves the young ones into the order.
    fn promote(&mut self) {
        for hold in std::mem::take(&mut self.young).into_iter().flatten() {
            self.old.insert(hold);
        }
        self.vacant.clear();
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Hold>> {
        self.young.iter().flatten().chain(self.old.iter())
    }

    /// Takes a hold out.
    fn take(&mut self, hold: &Hold) -> Option<Arc<Hold>> {
        let (at, old) = hold.place.get()?;
        if old {
            return self.old.remove(hold);
        }
        hold.place.clear();
        self.vacant.push(at);
        self.young[at].take()
    }

    /// Changes when a hold is due, if it still is in the books.
    fn move_to(&mut self, hold: &Hold, due: Instant) {
        if let Some(hold) = self.old.remove(hold) {
            hold.place.due.store(due.as_nanos(), Ordering::Relaxed);
            self.old.insert(hold);
        }
    }
}

/// The renewal task.
pub(crate) fn run(keeper: Arc<Keeper>, backend: DynBackend) -> impl Future<Output = ()> + Send {
    /// Tells the locks when the runtime drops the task, even one that never ran.
    struct Stopped(Arc<Keeper>);
    impl Drop for Stopped {
        fn drop(&mut self) {
            self.0.stopped.store(true, Ordering::SeqCst);
            self.0.ended.notify_waiters();
            self.0.fail_those_that_wait();
            self.0.forget_parting();
        }
    }
    let stopped = Stopped(Arc::clone(&keeper));
    // From now on, and not from when the task first runs.
    let events = backend.events();
    async move {
        let _stopped = stopped;
        renew_until_closed(&keeper, &backend, events).await;
    }
}

async fn renew_until_closed(
    keeper: &Keeper,
    backend: &DynBackend,
    mut events: Option<Receiver<StoreEvent>>,
) {
    let clock = keeper.clock;
    let mut running = FuturesUnordered::new();
    while !keeper.closed.load(Ordering::Acquire) {
        let due = keeper.collect(backend);
        for hold in due.late {
            hold.lose(Ended::Expired);
        }
        for hold in due.own {
            hold.engine.tell_held_here(hold.name(), clock.now().since(hold.granted_at()));
        }
        for mut batch in due.batches {
            running.push(async move {
                batch.sent = clock.now();
                let answers = renew(backend, &batch).await;
                (batch, answers)
            });
        }
        let look = Instant::from_nanos(keeper.next_look.load(Ordering::Relaxed));
        let idle = look.as_nanos() == NEVER;
        let look = look.min(clock.now().saturating_add(LONGEST_SLEEP));
        tokio::select! {
            // What an answer shows is told before the answer, and says why a claim is gone.
            biased;
            Some(told) = events::next(&mut events), if events.is_some() => {
                keeper.learn(&told, backend);
            }
            Some((batch, answers)) = running.next(), if !running.is_empty() => {
                keeper.settle(batch, answers);
            }
            () = keeper.wake.notified() => {}
            () = clock.sleep_until(look), if !idle => {}
        }
    }
}

async fn renew(backend: &DynBackend, batch: &Batch) -> Result<Vec<Renewed>, Error> {
    time::timeout(batch.limit, backend.renew(&batch.renewals)).await.unwrap_or_else(|_| {
        Err(Error::new(
            ErrorKind::Unavailable,
            format!("no answer to a renewal within {:?}", batch.limit),
        )
        .during("renew")
        .with_store(backend.store()))
    })
}
