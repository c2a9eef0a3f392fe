//! The task that owns the session.
//!
//! The server frees all locks of a session when it ends. So a lock is held as long as the session
//! is alive *and* this task has it in `held`. The two must not differ for long:
//!
//! - A key without an entry in `held` would block all clients. If the answer to a `ACQUIRE` is
//!   lost, the key may be the session's, so it is freed before the retry.
//! - A key that the server refuses to free is in `refused`, and is tried again. The session is
//!   closed only if no lock depends on it.
//! - An entry without a key would let two clients work. So whenever the connection is not open,
//!   before or after a statement, `held` is cleared first.
//!
//! If the process dies, its connection breaks, and the server frees the locks when it notices.

use std::{collections::HashMap, time::Duration};

use dlock_core::{
    Acquired, Certainty, ClaimId, ClaimState, Clock, Error, ErrorKind, FencingToken, Finding,
    Grant, Instant, LockName, LockState, Mode, Released, StoreClock, machine::spent,
};
use sqlx::postgres::PgRow;
use tokio::select;

use super::{ACQUIRE, FREE, INSPECT, PING, SWEEP, key};
use crate::{
    engine::{Ends, Fault, RetryBudget, Rounds, retry},
    plain::{MutexRequest, Want},
    postgres::{
        error::code_of,
        link::Link,
        literal::Arg,
        statement::{get, no_answer},
    },
};

/// The number of rows that one statement of the sweep looks at. It takes about a millisecond, since
/// the locks of this session wait for it.
const PAGE: i64 = 500;

/// The pause between two attempts to free keys that the server has refused to free.
const REFUSED: Duration = Duration::from_secs(1);

/// The session, and the locks that it has.
pub(in crate::postgres) struct Session {
    link: Link,
    requests: Ends<MutexRequest>,
    held: HashMap<i64, Held>,
    /// The keys that the server has refused to free, with their former claims.
    refused: HashMap<i64, ClaimId>,
    /// The time of the next attempt to free them.
    again: Instant,
    clock: StoreClock,
    response_timeout: Duration,
    retention: Duration,
    sweep: Rounds,
}

/// The result of a statement that takes a lock.
enum Took {
    Token(FencingToken),
    Busy,
    Late,
}

struct Held {
    claim: ClaimId,
    token: FencingToken,
    /// The end of the lease. By then the core has released or renewed it.
    until: Instant,
    /// Whether the last renewal has set the end.
    is_final: bool,
}

impl Held {
    /// Moves the end of the lease. Only the last renewal moves it to an earlier time. After it, no
    /// request moves it to a later time.
    fn renew(&mut self, until: Instant, is_last: bool) {
        self.until = match (is_last, self.is_final) {
            (false, true) => self.until,
            (false, false) => self.until.max(until),
            (true, false) => until,
            (true, true) => self.until.min(until),
        };
        self.is_final |= is_last;
    }
}

impl Session {
    pub(in crate::postgres) fn new(
        link: Link,
        requests: Ends<MutexRequest>,
        response_timeout: Duration,
        retention: Duration,
    ) -> Self {
        Self {
            link,
            requests,
            held: HashMap::new(),
            refused: HashMap::new(),
            again: Instant::from_nanos(0),
            clock: StoreClock::new(),
            response_timeout,
            retention,
            sweep: Rounds::new(retention),
        }
    }

    /// Works until the last caller is dropped.
    pub(in crate::postgres) async fn run(mut self) {
        // The answer shows the clock. If it fails, the first statement is refused because of its
        // deadline, and its answer shows the clock.
        let _ = self.ping().await;
        loop {
            let first = self.held.values().map(|held| held.until).min();
            let ending = first.unwrap_or(Instant::from_nanos(u64::MAX));
            select! {
                // Requests first: the sweep has time.
                biased;
                request = self.requests.recv() => match request {
                    Some(request) => self.serve(request).await,
                    None => break,
                },
                () = Clock::Boot.sleep_until(ending), if first.is_some() => self.expire().await,
                () = Clock::Boot.sleep_until(self.again), if !self.refused.is_empty() => self.settle().await,
                () = self.sweep.due() => self.sweep().await,
            }
        }
        self.link.close().await;
    }

    /// Serves one request. The caller may have stopped waiting.
    async fn serve(&mut self, request: MutexRequest) {
        match request {
            MutexRequest::Acquire(want, reply) => {
                if !reply.is_closed() {
                    let _ = reply.send(self.acquire(&want).await);
                }
            }
            MutexRequest::Renew(wants, reply) => {
                let _ = reply.send(Ok(self.renew(wants).await));
            }
            MutexRequest::Release(name, claim, reply) => {
                let _ = reply.send(self.release(&name, claim).await);
            }
            MutexRequest::Inspect(name, reply) => {
                let _ = reply.send(self.inspect(&name).await);
            }
            MutexRequest::List(_, reply) => {
                let _ = reply.send(Err(Error::new(
                    ErrorKind::Unsupported,
                    "the server keeps only hashes of the names of advisory locks (dlock.advisory), \
                     so it can't list the names: inspect each lock by its name",
                )));
            }
            // A query that takes too long would end the session, and with it all its locks.
            MutexRequest::Examine(reply) => {
                let _ = reply.send(Ok(vec![Finding::warning(
                    "mode",
                    "with dlock.advisory the server is not examined, because all locks are on one \
                     connection",
                    "run the doctor on the same database without dlock.advisory",
                )]));
            }
        }
    }

    async fn acquire(&mut self, want: &Want) -> Result<Acquired, Error> {
        let Want { name, claim, lease, .. } = want;
        let (claim, lease) = (*claim, *lease);
        let (key, mut budget) = (key(name), self.retry_budget());
        loop {
            let sent = Clock::Boot.now();
            let until = sent.saturating_add(lease);
            match self.held.get_mut(&key) {
                Some(held) if held.claim == claim => {
                    // An earlier request of this claim has taken it.
                    held.renew(until, false);
                    return Ok(granted(held.token, sent));
                }
                // The server would grant it: for a session, advisory locks are reentrant.
                Some(_) => return Ok(Acquired::Busy),
                None => {}
            }
            if let Some(&former) = self.refused.get(&key)
                && self.free(key, former).await.is_err()
            {
                return Ok(Acquired::Busy);
            }
            match self.acquire_once(key, name, lease).await {
                Ok(Took::Token(token)) => {
                    self.held.insert(key, Held { claim, token, until, is_final: false });
                    return Ok(granted(token, sent));
                }
                Ok(Took::Busy) => return Ok(Acquired::Busy),
                Ok(Took::Late) => budget.after(Fault::too_late()).await?,
                Err(fault) => {
                    // The session may have the lock, but no token.
                    self.drop_key(key, claim).await;
                    if is_out_of_range(&fault.error) {
                        return Err(spent());
                    }
                    budget.after(fault).await?;
                }
            }
        }
    }

    async fn acquire_once(
        &mut self,
        key: i64,
        name: &LockName,
        lease: Duration,
    ) -> Result<Took, Fault> {
        let sent = Clock::Boot.now();
        let deadline = self.clock.deadline(sent, lease.min(self.response_timeout)).unwrap_or(0);
        let by = Arg::Number(i64::try_from(deadline).unwrap_or(i64::MAX));
        let rows = self.fetch(ACQUIRE, &[Arg::Number(key), Arg::Text(name.as_str()), by]).await?;
        let row = rows.first().ok_or_else(no_answer)?;
        let now = self.observe(get(row, 0)?, sent);
        match get::<Option<i64>>(row, 1)? {
            Some(number) => Ok(Took::Token(token(number)?)),
            None if now > deadline => Ok(Took::Late),
            None => Ok(Took::Busy),
        }
    }

    /// Records the server's clock in the answer to a request that was sent at `sent`.
    fn observe(&mut self, shown: i64, sent: Instant) -> u64 {
        let shown = u64::try_from(shown).unwrap_or(0);
        self.clock.observe(shown, sent, Clock::Boot.now());
        shown
    }

    /// Checks that the session is alive, and reads the clock.
    async fn ping(&mut self) -> Result<(), Fault> {
        let sent = Clock::Boot.now();
        let rows = self.fetch(PING, &[]).await?;
        if let Some(row) = rows.first() {
            self.observe(get(row, 0)?, sent);
        }
        Ok(())
    }

    /// Frees a key, and returns whether the session had it. Keeps the key in `refused` if the
    /// server refuses that. If no other lock depends on the session, closes the session instead.
    async fn free(&mut self, key: i64, claim: ClaimId) -> Result<bool, Fault> {
        self.held.remove(&key);
        match self.fetch(FREE, &[Arg::Number(key)]).await {
            Ok(rows) => {
                self.refused.remove(&key);
                Ok(rows.first().and_then(|row| get(row, 0).ok()).unwrap_or(false))
            }
            Err(fault) if self.link.is_open() && !self.held.is_empty() => {
                self.refused.insert(key, claim);
                self.again = Clock::Boot.now().saturating_add(REFUSED);
                Err(fault)
            }
            Err(fault) => {
                tracing::debug!(target: "dlock", error = %fault.error, "lock freed by closing its session");
                self.lose();
                Ok(true)
            }
        }
    }

    /// Frees a key that may be the session's. Without a connection there is nothing to free.
    async fn drop_key(&mut self, key: i64, claim: ClaimId) {
        if self.link.is_open()
            && let Err(fault) = self.free(key, claim).await
        {
            tracing::warn!(target: "dlock", error = %fault.error, "unlock refused, will be repeated");
        }
    }

    /// Tries again to free the keys that the server has refused to free.
    async fn settle(&mut self) {
        while let Some((&key, &claim)) = self.refused.iter().next() {
            if self.free(key, claim).await.is_err() {
                return;
            }
        }
    }

    async fn renew(&mut self, wants: Vec<Want>) -> Vec<bool> {
        let now = Clock::Boot.now();
        if !self.held.is_empty() {
            match self.ping().await {
                Err(fault) if !self.link.is_open() => {
                    tracing::warn!(target: "dlock", error = %fault.error, "session lost with all its locks");
                }
                // Even an error of the server proves that the session is alive.
                _ => {}
            }
        }
        let renew = |want: Want| {
            let held = self.held.get_mut(&key(&want.name)).filter(|held| held.claim == want.claim);
            held.map(|held| held.renew(now.saturating_add(want.lease), want.is_last)).is_some()
        };
        wants.into_iter().map(renew).collect()
    }

    async fn release(&mut self, name: &LockName, claim: ClaimId) -> Result<Released, Error> {
        let key = key(name);
        let is_held = self.held.get(&key).is_some_and(|held| held.claim == claim);
        if !is_held && self.refused.get(&key) != Some(&claim) {
            return Ok(Released::AlreadyLost);
        }
        match self.free(key, claim).await {
            Ok(true) => Ok(Released::Released),
            Ok(false) => Ok(Released::AlreadyLost),
            Err(fault) => Err(fault.error),
        }
    }

    async fn inspect(&mut self, name: &LockName) -> Result<LockState, Error> {
        let key = key(name);
        let args = [Arg::Number(key), Arg::Text(name.as_str())];
        let rows = retry!(self.retry_budget(), self.fetch(INSPECT, &args).await)?;
        let Some(row) = rows.first() else {
            return Err(Error::new(
                ErrorKind::Protocol,
                "the server answered without a row: check that it is PostgreSQL",
            ));
        };
        let (is_held, last) = (get::<bool>(row, 0)?, get::<Option<i64>>(row, 1)?);
        let token = last.and_then(|last| token(last).ok());
        let holder = is_held.then(|| {
            // The server knows the session of a holder, but not its claim.
            let claim = self.held.get(&key).map_or(ClaimId::from_bits(0), |held| held.claim);
            // The server has no lease: it is held as long as the session lasts.
            ClaimState::new(claim, Mode::Exclusive, token, Duration::MAX)
        });
        Ok(LockState::new(holder.into_iter().collect(), Vec::new(), token))
    }

    /// Frees a lock whose lease has ended.
    async fn expire(&mut self) {
        let now = Clock::Boot.now();
        let ended = self.held.iter().find(|(_, held)| held.until <= now);
        if let Some((key, claim)) = ended.map(|(&key, held)| (key, held.claim)) {
            self.drop_key(key, claim).await;
            self.held.remove(&key);
        }
    }

    async fn sweep(&mut self) {
        let age = i64::try_from(self.retention.as_micros()).unwrap_or(i64::MAX);
        let after = std::mem::take(&mut self.sweep.after);
        let args = [Arg::Text(&after), Arg::Number(age), Arg::Number(PAGE)];
        let swept = self.fetch(SWEEP, &args).await.and_then(|rows| {
            let row = rows.first().ok_or_else(no_answer)?;
            Ok((get::<Option<String>>(row, 0)?, get::<i64>(row, 1)? > 0))
        });
        match swept {
            Ok((last, found)) => self.sweep.turn(last, found),
            Err(Fault { error, .. }) => {
                tracing::warn!(target: "dlock", %error, "sweep of unused rows failed");
                self.sweep.rest();
            }
        }
    }

    /// Runs a statement. If that opens a new connection, all locks of the old one are lost.
    async fn fetch(&mut self, sql: &'static str, args: &[Arg<'_>]) -> Result<Vec<PgRow>, Fault> {
        if !self.link.is_open() {
            self.lose();
        }
        let result = self.link.fetch(sql, args).await;
        if !self.link.is_open() {
            self.lose();
        }
        result
    }

    /// Ends the session, and with it all its locks.
    fn lose(&mut self) {
        self.held.clear();
        self.refused.clear();
        self.link.drop_connection();
    }

    fn retry_budget(&self) -> RetryBudget {
        RetryBudget::of_all_names(self.response_timeout)
    }
}

/// Returns whether the server could not add to the last token, since it is the largest possible.
fn is_out_of_range(error: &Error) -> bool {
    code_of(error).as_deref() == Some("22003")
}

fn granted(token: FencingToken, since: Instant) -> Acquired {
    Acquired::Granted(Grant::new(token, 1, since))
}

fn token(number: i64) -> Result<FencingToken, Fault> {
    let token = u64::try_from(number).ok().and_then(|number| FencingToken::new(number).ok());
    token.ok_or_else(|| {
        Error::new(
            ErrorKind::Protocol,
            format!("the table dlock_advisory has the invalid token {number}: repair the row"),
        )
        .with_certainty(Certainty::Unknown)
        .into()
    })
}
