//! The verbs of the contract, as operations on rows.
//!
//! A verb sends a job to a worker and waits for the answer. Dropping its future drops only the
//! wait: the worker skips jobs whose callers have stopped waiting, except releases. So `acquire`
//! and `release` need no clean-up of their own. The core gives up an `acquire` that the worker has
//! not begun, and cancels any other with a release.
//!
//! `warned` is a flag for the log. It is relaxed: the swap lets one of several callers warn.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use dlock_core::{
    AcquireRequest, Acquired, Admin, Answer, Backend, Certainty, Claim, Clock, Error, FencingToken,
    Finding, Grant, Guarantees, Instant, LockName, LockState, Released, Renewal, Renewed, SendFlag,
    StoreClocks, StoreEvents,
    machine::{Micros, Op},
};
use tokio::{
    runtime::Handle,
    select,
    sync::{mpsc, oneshot},
};

use super::{
    Connections, EngineSettings, batch,
    conn::{Conn, Listener},
    durability::DurabilityMonitor,
    fault::DatabaseGone,
    job::{Jobs, PendingOp, answer_of, first, gone},
    list,
    listen::listen,
    outcome::OpOutcome,
    reader::{self, ReadRequest, Reader, Reply},
    tasks::spawn,
    waiters::{Standing, Waiters},
    worker::{Shared, Worker},
};

/// The largest number of claims that one statement renews.
const RENEWALS: usize = 500;

/// A lease below this part of the response timeout is short.
const SHORT: u32 = 2;

/// A waiting claim sends a heartbeat after this part of its lease.
const SIGN_OF_LIFE: u32 = 3;

/// A backend over rows. Its tasks end when the backend and its answers are dropped.
#[derive(Debug)]
pub(crate) struct Engine {
    store: Arc<str>,
    /// The best possible guarantees.
    guarantees: Guarantees,
    durability: DurabilityMonitor,
    jobs: Jobs,
    reads: mpsc::Sender<ReadRequest>,
    waiters: Arc<Waiters>,
    clocks: Arc<StoreClocks>,
    settings: EngineSettings,
    /// Whether the warning about a short lease was logged.
    warned: AtomicBool,
    /// The number of claims that one statement renews.
    together: usize,
    /// Ends the listener when it is dropped.
    _listener: oneshot::Sender<()>,
}

impl Engine {
    /// Starts the tasks. `store` names the database, without secrets.
    pub(crate) fn start<C: Conn, E: Listener>(
        runtime: &Handle,
        store: Arc<str>,
        guarantees: Guarantees,
        connections: Connections<C, E>,
        settings: EngineSettings,
        durability: DurabilityMonitor,
    ) -> Self {
        let together = RENEWALS.min(batch::fitting(connections.reader.most_bytes()));
        let (jobs, queues) =
            Jobs::channels(connections.writers.len(), connections.renewer.is_some());
        let (reads, requested) = ReadRequest::channel();
        let (notifications, sent_notifications) = mpsc::channel(reader::NOTIFICATIONS);
        let (waiters, clocks) =
            (Arc::new(Waiters::new(settings.rarely)), Arc::new(StoreClocks::new()));
        if let Some(sample) = connections.sample {
            clocks.observe(0, sample.now, sample.sent);
        }
        let shared =
            Shared::new(waiters.clone(), clocks.clone(), notifications, durability.clone());
        let (closed, reader_closed) = oneshot::channel::<()>();
        let mut closing = Some(reader_closed);
        let writers = connections.writers.len();
        let conns = connections.writers.into_iter().chain(connections.renewer);
        for (number, (conn, queue)) in conns.zip(queues).enumerate() {
            let worker = Worker::new(conn, queue, shared.clone(), settings);
            let closing = closing.take();
            // No renewal waits for a sweep.
            let number = Some(number).filter(|number| *number < writers);
            spawn(runtime, async move {
                let conn = worker.run(number).await;
                // The reader closes before this worker, so that the last connection knows that it
                // is the last, and can clean up.
                if let Some(reader_closed) = closing {
                    let _ = reader_closed.await;
                }
                conn.close().await;
            });
        }
        let reader =
            Reader::new(connections.reader, requested, sent_notifications, &shared, settings);
        spawn(runtime, async move {
            reader.run().await;
            drop(closed);
        });
        let (listening, dropped) = oneshot::channel();
        if let Some(listener) = connections.listener {
            spawn(runtime, listen(listener, waiters.clone(), dropped));
        }
        Self {
            store,
            guarantees,
            durability,
            jobs,
            reads,
            waiters,
            clocks,
            settings,
            warned: AtomicBool::new(false),
            together,
            _listener: listening,
        }
    }
}

#[async_trait]
impl Backend for Engine {
    fn store(&self) -> &str {
        &self.store
    }

    fn guarantees(&self) -> Guarantees {
        self.durability.promised(self.guarantees)
    }

    fn response_timeout(&self) -> Duration {
        self.settings.response_timeout
    }

    fn check_lease(&self, lease: Duration) -> Result<(), Error> {
        // A statement waits for a locked row for a part of the response timeout.
        if lease < self.settings.response_timeout / SHORT
            && !self.warned.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                target: "dlock",
                ?lease,
                response_timeout = ?self.settings.response_timeout,
                "lease too short for dlock.response_timeout: one row locked by another client may \
                 cost other locks their leases; set dlock.response_timeout to at most one lease"
            );
        }
        Ok(())
    }

    fn events(&self) -> Option<StoreEvents> {
        Some(self.clocks.events())
    }

    fn acquire(&self, request: &AcquireRequest) -> Answer<Acquired> {
        let (jobs, name, mode) = (self.jobs.clone(), request.name.clone(), request.mode);
        let ops = vec![PendingOp::new(name, self.acquire_op(request))];
        Answer::unsent(|flag| async move { first(&jobs.acquire(ops, flag).await?)?.acquired(mode) })
    }

    fn acquire_all(&self, requests: &[AcquireRequest]) -> Option<Answer<Vec<Acquired>>> {
        let jobs = self.jobs.clone();
        let requests: Vec<_> =
            requests.iter().map(|request| (request.clone(), self.acquire_op(request))).collect();
        Some(Answer::unsent(|flag| async move { acquire_all(&jobs, &requests, flag).await }))
    }

    async fn granted(&self, request: &AcquireRequest) -> Result<Grant, Error> {
        // A heartbeat. It does not join the queue again: if the place was lost, the answer says so.
        let op = Op::Renew {
            claim: request.claim,
            mode: request.mode,
            lease: self.lease(request.lease),
            is_last: false,
        };
        loop {
            match self.waiters.standing(&request.name, request.claim) {
                Standing::Granted(grant) if !has_ended(&grant, request.lease) => return Ok(grant),
                Standing::Waiting { wake, renewed, expiry } => {
                    let due = renewed.saturating_add(request.lease / SIGN_OF_LIFE);
                    let until = expiry.map_or(due, |expiry| expiry.min(due));
                    select! {
                        () = wake.notified() => continue,
                        () = Clock::Boot.sleep_until(until) => {}
                    }
                }
                // This process does not know the claim, or found its grant too late. The answer of
                // the store decides.
                Standing::Granted(_) | Standing::Unknown => {}
            }
            let outcome = self.jobs.send_one(request.name.clone(), op.clone()).await?;
            if let Some(grant) = outcome.granted()? {
                return Ok(grant);
            }
        }
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, Error> {
        let mut renewed = vec![Renewed::Unknown; renewals.len()];
        let (mut failed, mut last) = (0, None);
        // The statements run one after the other: each has its own answers, so a failure affects
        // only its own part.
        for part in batch::distinct(renewals, self.together) {
            let ops = part.iter().map(|&at| self.renew_op(&renewals[at])).collect();
            let results = self.jobs.renew(ops).await?;
            for (at, result) in part.into_iter().zip(results) {
                let Renewal { claim, token, lease, .. } = &renewals[at];
                // With a retention this short, the row may have been deleted after the claim ended,
                // so a missing token proves no loss of data.
                let outlasts_lease = self.settings.retention > *lease;
                match result.and_then(|outcome| outcome.renewed(*token, outlasts_lease)) {
                    Ok(answer) => renewed[at] = answer,
                    Err(error) if DatabaseGone::caused(&error) => renewed[at] = Renewed::Forgotten,
                    Err(error) => {
                        failed += 1;
                        last = Some(error.with_lock(&claim.name));
                    }
                }
            }
        }
        match last {
            Some(error) if failed == renewals.len() => Err(error),
            Some(error) => {
                let error = error.during("renew").with_store(&self.store);
                tracing::warn!(target: "dlock", %error, failed, "some renewals of a batch failed");
                Ok(renewed)
            }
            None => Ok(renewed),
        }
    }

    fn release(&self, claim: &Claim) -> Answer<Released> {
        let (jobs, name) = (self.jobs.clone(), claim.name.clone());
        let op = Op::Release { claim: claim.id, used: claim.used, bar: 0 };
        Answer::later(async move {
            match jobs.send_one(name, op).await.and_then(OpOutcome::released) {
                Err(error) if DatabaseGone::caused(&error) => Ok(Released::AlreadyLost),
                released => released,
            }
        })
    }

    async fn inspect(&self, name: &LockName) -> Result<LockState, Error> {
        self.read(|reply| ReadRequest::Inspect(name.clone(), reply)).await
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }
}

#[async_trait]
impl Admin for Engine {
    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockName>, Error> {
        // One read for each page, so that the reader serves the waiters in between.
        let page = |range| self.read(|reply| ReadRequest::List(range, reply));
        list::list(prefix, limit, page).await
    }

    async fn examine(&self) -> Result<Vec<Finding>, Error> {
        self.read(ReadRequest::Examine).await
    }

    async fn raise_tokens(&self, name: &LockName, above: FencingToken) -> Result<(), Error> {
        self.jobs.send_one(name.clone(), Op::Raise { above: above.get() }).await?.raised()
    }
}

impl Engine {
    /// Sends a request to the reader.
    async fn read<T>(&self, request: impl FnOnce(Reply<T>) -> ReadRequest) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        self.reads.send(request(reply)).await.map_err(|_| gone())?;
        answer_of(answer, &self.reads).await.unwrap_or_else(|| Err(gone()))
    }

    fn acquire_op(&self, request: &AcquireRequest) -> Op {
        Op::Acquire {
            claim: request.claim,
            mode: request.mode,
            lease: self.lease(request.lease),
            block: request.tokens,
            queue: request.queue,
            home: self.settings.home,
            note: request.note.clone(),
        }
    }

    fn renew_op(&self, renewal: &Renewal) -> PendingOp {
        let op = Op::Renew {
            claim: renewal.claim.id,
            mode: renewal.mode,
            lease: self.lease(renewal.lease),
            is_last: renewal.is_last,
        };
        let pending = PendingOp::new(renewal.claim.name.clone(), op);
        PendingOp { answer_within: Some(renewal.answer_within), ..pending }
    }

    /// Returns the lease for the database, one tick longer. The database's clock may show the same
    /// time for a tick at either end, and the lease must not expire early.
    fn lease(&self, lease: Duration) -> Micros {
        let micros = lease.as_nanos().div_ceil(1000);
        Micros::try_from(micros).unwrap_or(Micros::MAX).saturating_add(self.settings.tick)
    }
}

/// Takes all claims in one statement, or none.
async fn acquire_all(
    jobs: &Jobs,
    requests: &[(AcquireRequest, Op)],
    flag: SendFlag,
) -> Result<Vec<Acquired>, Error> {
    let ops = requests
        .iter()
        .map(|(request, op)| PendingOp::new(request.name.clone(), op.clone()))
        .collect();
    let outcomes = jobs.acquire(ops, flag).await?;
    let acquired = requests
        .iter()
        .zip(outcomes)
        .map(|((request, _), outcome)| {
            outcome.acquired(request.mode).map_err(|error| error.with_lock(&request.name))
        })
        .collect();
    let Err(error) = acquired else { return acquired };
    // One of the names is in use with another capacity, and the statement has taken the others.
    // They are released at once. If that fails, the certainty tells the core to release them.
    let back = requests
        .iter()
        .map(|(request, _)| {
            PendingOp::new(
                request.name.clone(),
                Op::Release { claim: request.claim, used: 0, bar: 0 },
            )
        })
        .collect();
    match jobs.send(back).await {
        Ok(_) => Err(error),
        Err(_) => Err(error.with_certainty(Certainty::Unknown)),
    }
}

fn has_ended(grant: &Grant, lease: Duration) -> bool {
    let now: Instant = Clock::Boot.now();
    now >= grant.since.saturating_add(lease)
}
