//! Locks of a session: PostgreSQL's advisory locks. The database frees them when it notices a dead
//! connection, not at the end of a lease.
//!
//! One connection has all locks of this backend, and they are lost with it. The server frees them
//! when it notices: at once after a crash of the holder's process, and after a network partition
//! when its own keep-alive gives up. The holder notices at its next renewal, which is a query on
//! that connection, or at the end of its own lease. In between another client may get the lock. So
//! the guarantee of exclusion is the weakest. The fencing tokens, from a row of the lock's name,
//! distinguish the two holders.
//!
//! A statement on a lost connection may arrive late. It takes effect in a session that no client
//! uses any more. That session ends with its connection, and its locks with it: at once if the
//! server receives the client's close, which comes right behind the statement, and otherwise after
//! 25 s, when the keep-alive that dlock sets gives up. A take has a deadline by the server's clock
//! as well, so that none starts after its sender has stopped waiting.
//!
//! See <https://www.postgresql.org/docs/current/explicit-locking.html#ADVISORY-LOCKS>. A key has 64
//! bits: the FNV-1a hash of `dlock:` and the name. Two names with the same key, which can't be
//! detected, exclude each other. There is no queue: waiters poll.
//!
//! # The task that owns the session
//!
//! The server frees all locks of a session when it ends. So a lock is held as long as the session
//! is alive *and* this task has it in `held`. The two must not differ for long:
//!
//! - A key without an entry in `held` would block all clients. If the answer to an acquire is
//!   lost, the key may be the session's, so it is freed before the retry.
//! - A key that the server refuses to free is in `refused`, and is tried again. The session is
//!   closed only if no lock depends on it.
//! - An entry without a key would let two clients work. So whenever the connection is not open,
//!   before or after a statement, `held` is cleared first.
//!
//! If the process dies, its connection breaks, and the server frees the locks when it notices.

use std::{collections::HashMap, sync::Arc, time::Duration};

use dlock_core::{
    AcquireRequest, Acquired, Certainty, ClaimId, ClaimState, Clock, DynBackend, Error, ErrorKind,
    Fencing, FencingToken, Finding, Grant, Guarantees, Instant, LockName, LockState, Mode,
    OrphanRelease, Released, Renewal, Scope, StoreClock, machine::spent,
};
use sqlx::postgres::PgRow;
use tokio::{runtime::Handle, select};

use super::{
    PostgresConfig,
    error::code_of,
    link::Link,
    literal::Arg,
    queries,
    schema::{Tables, prepare_in_time},
    source::Source,
    statement::{get, no_answer},
};
use crate::{
    engine::{Ends, Fault, Listed, Range, RetryBudget, Rounds, retry},
    plain::{Form, MutexRequest, MutexStore, MutexTask},
    server::value,
};

/// The number of rows that one statement of the sweep looks at. It takes about a millisecond, since
/// the locks of this session wait for it.
const PAGE: i64 = 500;

/// The pause between two attempts to free keys that the server has refused to free.
const REFUSED: Duration = Duration::from_secs(1);

/// Opens the advisory mode.
pub(super) async fn open_advisory(
    config: &PostgresConfig,
    runtime: &Handle,
    database: &str,
) -> Result<DynBackend, Error> {
    if config.driver.pooler || config.plain.is_some() {
        return Err(value(
            "dlock.advisory can't be combined with dlock.pooler or dlock.plain: use one of them",
        ));
    }
    let mut link = Link::new(config.own(), config.transport(), config.response_timeout);
    let prepared = prepare_in_time(&mut link, Tables::Advisory, config).await?;
    link.name_tables(prepared.texts);
    check_pooler(&mut link, config.own(), config).await?;
    let (response_timeout, retention) = (config.response_timeout, config.retention);
    let form = Form {
        name: "the advisory mode (dlock.advisory)",
        suffix: "advisory",
        together: usize::MAX,
        promises: Box::new(|| {
            Guarantees::WEAKEST
                .with_fencing(Fencing::Clock)
                .with_orphan_release(OrphanRelease::SessionEnd)
                .with_scope(Scope::Network)
        }),
    };
    // Without the schema: the server has one lock per key in a database, wherever its token is.
    Ok(Arc::new(MutexStore::start(runtime, database, form, response_timeout, |requests| {
        Session::new(link, requests, response_timeout, retention).run()
    })))
}

/// Checks whether a pooler shares connections: two connections have one server process each, but
/// behind a transaction pooler they may share one.
async fn check_pooler(
    link: &mut Link,
    source: Source,
    config: &PostgresConfig,
) -> Result<(), Error> {
    let mut other = Link::new(source, config.transport(), config.response_timeout);
    let process = async |link: &mut Link| -> Result<i64, Fault> {
        let rows = link.fetch(queries::PROCESS, &[]).await?;
        rows.first().map_or(Ok(0), |row| get(row, 0))
    };
    let ours = process(link).await?;
    let others = process(&mut other).await?;
    other.close().await;
    if ours != others {
        return Ok(());
    }
    Err(value(
        "dlock.advisory does not work through a pooler, and here two connections share a session: \
         give the address of the server",
    ))
}

/// The session, and the locks that it has.
struct Session {
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
    /// The first name that this session has tried to acquire.
    used: Option<LockName>,
}

/// The result of a statement that takes a lock.
enum Took {
    Token(FencingToken),
    Busy,
    Late,
}

/// A page of the sweep.
struct Swept {
    /// The last name. `None` if there are no more names.
    last: Option<String>,
    is_empty: bool,
    /// Whether rows were deleted.
    found: bool,
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
    fn new(
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
            used: None,
        }
    }

    /// Works until the last caller is dropped.
    async fn run(mut self) {
        // The answer shows the clock. If it fails, the first statement is refused because of its
        // deadline, and its answer shows the clock.
        let _ = self.ping().await;
        loop {
            let first = self.held.values().map(|held| held.until).min();
            let ending = first.unwrap_or(Instant::from_nanos(u64::MAX));
            select! {
                // Requests first.
                biased;
                request = self.requests.recv() => match request {
                    Some(request) => {
                        self.serve(request).await;
                        // A client that only reads need not delete at once.
                        if self.used.is_some() && self.sweep.is_due() {
                            self.sweep().await;
                        }
                    }
                    None => break,
                },
                () = Clock::Boot.sleep_until(ending), if first.is_some() => self.expire().await,
                () = Clock::Boot.sleep_until(self.again), if !self.refused.is_empty() => self.settle().await,
                () = self.sweep.due() => self.sweep().await,
            }
        }
        self.link.close().await;
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
        let rows = self
            .fetch(queries::ADVISORY_ACQUIRE, &[Arg::Number(key), Arg::Text(name.as_str()), by])
            .await?;
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

    /// Reads the clock.
    async fn ping(&mut self) -> Result<(), Fault> {
        let sent = Clock::Boot.now();
        let rows = self.fetch(queries::NOW, &[]).await?;
        if let Some(row) = rows.first() {
            self.observe(get(row, 0)?, sent);
        }
        Ok(())
    }

    /// Checks whether the session has ended, and with it the locks in `held`.
    async fn check_session(&mut self) {
        if self.held.is_empty() {
            return;
        }
        match self.ping().await {
            Err(fault) if !self.link.is_open() => {
                tracing::warn!(target: "dlock", error = %fault.error, "session lost with all its locks");
            }
            // Even an error of the server proves that the session is alive.
            _ => {}
        }
    }

    /// Frees a key, and returns whether the session had it. Keeps the key in `refused` if the
    /// server refuses that. If no other lock depends on the session, closes the session instead.
    async fn free(&mut self, key: i64, claim: ClaimId) -> Result<bool, Fault> {
        self.held.remove(&key);
        match self.fetch(queries::ADVISORY_FREE, &[Arg::Number(key)]).await {
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
        let skip = self.sweep.skip(self.used.as_ref());
        let swept = match self.sweep_page(skip).await {
            Ok(page) if page.is_empty && self.sweep.starts_over(skip) => self.sweep_page(0).await,
            swept => swept,
        };
        match swept {
            Ok(Swept { last, found, .. }) => self.sweep.turn(last, found),
            Err(Fault { error, .. }) => {
                tracing::warn!(target: "dlock", %error, "sweep of unused rows failed");
                self.sweep.rest();
            }
        }
    }

    /// Deletes the old tokens of a page.
    async fn sweep_page(&mut self, skip: u32) -> Result<Swept, Fault> {
        let age = i64::try_from(self.retention.as_micros()).unwrap_or(i64::MAX);
        let after = self.sweep.after.clone();
        let [age, most, skip] = [age, PAGE, skip.into()].map(Arg::Number);
        let args = [Arg::Text(&after), age, most, skip];
        let rows = self.fetch(queries::ADVISORY_SWEEP, &args).await?;
        let row = rows.first().ok_or_else(no_answer)?;
        let (is_empty, found) = (get::<i64>(row, 1)? == 0, get::<i64>(row, 2)? > 0);
        Ok(Swept { last: get(row, 0)?, is_empty, found })
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

impl MutexTask for Session {
    async fn acquire(&mut self, request: &AcquireRequest) -> Result<Acquired, Error> {
        let AcquireRequest { ref name, claim, lease, .. } = *request;
        let (key, mut budget) = (key(name), self.retry_budget());
        self.used.get_or_insert_with(|| name.clone());
        loop {
            let sent = Clock::Boot.now();
            let until = sent.saturating_add(lease);
            match self.held.get(&key) {
                // An earlier request of this claim has taken it, unless the session has ended.
                Some(held) if held.claim == claim => {
                    self.check_session().await;
                    let Some(held) = self.held.get_mut(&key) else { continue };
                    held.renew(until, false);
                    // After the last renewal, it ends earlier.
                    return Ok(granted(held.token, sent.min(held.until.saturating_sub(lease))));
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

    async fn renew(&mut self, renewals: &[Renewal]) -> Result<Vec<bool>, Error> {
        let now = Clock::Boot.now();
        self.check_session().await;
        let renew = |renewal: &Renewal| {
            let held = self.held.get_mut(&key(&renewal.claim.name));
            let held = held.filter(|held| held.claim == renewal.claim.id);
            held.map(|held| held.renew(now.saturating_add(renewal.lease), renewal.is_last))
                .is_some()
        };
        Ok(renewals.iter().map(renew).collect())
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
        let rows = retry!(self.retry_budget(), self.fetch(queries::ADVISORY_INSPECT, &args).await)?;
        let Some(row) = rows.first() else {
            return Err(Error::new(
                ErrorKind::Protocol,
                "the server answered without a row: check that it is PostgreSQL",
            ));
        };
        let (is_held, last) = (get::<bool>(row, 0)?, get::<Option<i64>>(row, 1)?);
        let token = last.and_then(|last| token(last).ok());
        let holder = is_held.then(|| {
            // The server knows the session of a holder, but not its claim. Another session may be of
            // another program, and then the last token is not the holder's.
            let own = self.held.get(&key);
            let claim = own.map_or(ClaimId::UNKNOWN, |held| held.claim);
            let token = own.map(|held| held.token);
            // The server has no lease: it is held as long as the session lasts.
            ClaimState::new(claim, Mode::Exclusive, token, Duration::MAX)
        });
        Ok(LockState::new(holder.into_iter().collect(), Vec::new(), token))
    }

    async fn list(&mut self, _: &Range) -> Result<Vec<Listed>, Error> {
        Err(Error::new(
            ErrorKind::Unsupported,
            "the server keeps only hashes of the names of advisory locks (dlock.advisory), so it \
             can't list the names: inspect each lock by its name",
        ))
    }

    async fn examine(&mut self) -> Result<Vec<Finding>, Error> {
        // A query that takes too long would end the session, and with it all its locks.
        Ok(vec![Finding::warning(
            "mode",
            "with dlock.advisory the server is not examined, because all locks are on one \
             connection",
            "run the doctor on the same database without dlock.advisory",
        )])
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

/// Returns the key of a name: 64-bit FNV-1a (<http://www.isthe.com/chongo/tech/comp/fnv/>).
fn key(name: &LockName) -> i64 {
    let bytes = b"dlock:".iter().chain(name.as_str().as_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    i64::from_ne_bytes(hash.to_ne_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other programs rely on it.
    #[test]
    fn keys_never_change() {
        let key = |name: &str| key(&LockName::new(name).unwrap());
        assert_eq!(key("a"), KEY_OF_A);
        assert_ne!(key("a"), key("b"));
    }

    const KEY_OF_A: i64 = -3_883_536_647_512_444_663;
}
