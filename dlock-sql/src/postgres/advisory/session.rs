//! The task that owns the session.

use std::{collections::HashMap, time::Duration};

use dlock_core::{
    Acquired, Certainty, ClaimId, Clock, Error, ErrorKind, FencingToken, Grant, Instant, LockName,
    Released, StoreClock, machine::spent,
};
use tokio::{select, sync::oneshot};

use super::{FREE, LOOK, PING, SWEEP, TAKE, key};
use crate::{
    engine::{Ends, Fault, Message, Patience},
    plain::no_answer,
    postgres::{conn::get, link::Link, statement::Arg},
};

/// The pause between two sweeps of the tokens' table.
const ROUND: Duration = Duration::from_secs(3600);

/// What a caller asks for, and where the answer goes.
#[derive(Debug)]
pub(super) enum Ask {
    Take {
        name: LockName,
        claim: ClaimId,
        lease: Duration,
        reply: Reply<Acquired>,
    },
    /// Whether each claim is held, whose lease then starts anew.
    Renew {
        claims: Vec<(LockName, ClaimId, Duration)>,
        reply: Reply<Vec<bool>>,
    },
    GiveBack {
        name: LockName,
        claim: ClaimId,
        reply: Reply<Released>,
    },
    Look {
        name: LockName,
        reply: Reply<Seen>,
    },
}

pub(super) type Reply<T> = oneshot::Sender<Result<T, Error>>;

impl Message for Ask {
    fn is_urgent(&self) -> bool {
        matches!(self, Self::Renew { .. } | Self::GiveBack { .. })
    }
}

/// What an onlooker sees.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) is_held: bool,
    /// Whose it is, if it is this backend's.
    pub(super) claim: Option<ClaimId>,
    pub(super) token: Option<FencingToken>,
}

/// The session, and what it has.
pub(super) struct Session {
    link: Link,
    asks: Ends<Ask>,
    held: HashMap<i64, Held>,
    clock: StoreClock,
    patience: Duration,
    retention: Duration,
    swept: Instant,
}

/// What a statement that takes a lock came to.
enum Took {
    Token(FencingToken),
    Busy,
    Late,
}

struct Held {
    claim: ClaimId,
    token: FencingToken,
    /// The core has let go of it by then, or it has been renewed.
    until: Instant,
}

impl Session {
    pub(super) fn new(
        link: Link,
        asks: Ends<Ask>,
        patience: Duration,
        retention: Duration,
    ) -> Self {
        let (held, clock, swept) = (HashMap::new(), StoreClock::new(), Instant::from_nanos(0));
        Self { link, asks, held, clock, patience, retention, swept }
    }

    /// Works until the last caller has gone.
    pub(super) async fn run(mut self) {
        // Should it fail, the first statement is too late and tells the time.
        let _ = self.ping().await;
        loop {
            let first = self.held.values().map(|held| held.until).min();
            let ending = first.unwrap_or(Instant::from_nanos(u64::MAX));
            select! {
                ask = self.asks.recv() => match ask {
                    Some(ask) => self.serve(ask).await,
                    None => break,
                },
                () = Clock::Boot.sleep_until(ending), if first.is_some() => self.expire().await,
            }
            self.sweep().await;
        }
        self.link.close().await;
    }

    /// Who asked may have gone; that is its right.
    async fn serve(&mut self, ask: Ask) {
        match ask {
            Ask::Take { name, claim, lease, reply } => {
                if !reply.is_closed() {
                    let _ = reply.send(self.take(&name, claim, lease).await);
                }
            }
            Ask::Renew { claims, reply } => {
                let _ = reply.send(self.renew(claims).await);
            }
            Ask::GiveBack { name, claim, reply } => {
                let _ = reply.send(self.give_back(&name, claim).await);
            }
            Ask::Look { name, reply } => {
                let _ = reply.send(self.look(&name).await);
            }
        }
    }

    async fn take(
        &mut self,
        name: &LockName,
        claim: ClaimId,
        lease: Duration,
    ) -> Result<Acquired, Error> {
        let (key, mut patience) = (key(name), self.patience());
        loop {
            let sent = Clock::Boot.now();
            let until = sent.saturating_add(lease);
            match self.held.get_mut(&key) {
                Some(held) if held.claim == claim => {
                    // An earlier asking took it.
                    held.until = until;
                    return Ok(granted(held.token, sent));
                }
                // The session itself would be let in again.
                Some(_) => return Ok(Acquired::Busy),
                None => {}
            }
            match self.take_once(key, name, lease).await {
                Ok(Took::Token(token)) => {
                    self.held.insert(key, Held { claim, token, until });
                    return Ok(granted(token, sent));
                }
                Ok(Took::Busy) => return Ok(Acquired::Busy),
                Ok(Took::Late) => patience.after(Fault::too_late()).await?,
                Err(fault) => {
                    // The session may have it, without a token.
                    self.drop_key(key).await;
                    if is_out_of_range(&fault.error) {
                        return Err(spent());
                    }
                    patience.after_unless_of_a_row(fault).await?;
                }
            }
        }
    }

    async fn take_once(
        &mut self,
        key: i64,
        name: &LockName,
        lease: Duration,
    ) -> Result<Took, Fault> {
        let sent = Clock::Boot.now();
        let deadline = self.clock.deadline(sent, lease.min(self.patience)).unwrap_or(0);
        let by = Arg::Number(i64::try_from(deadline).unwrap_or(i64::MAX));
        let rows = self.fetch(TAKE, &[Arg::Number(key), Arg::Text(name.as_str()), by]).await?;
        let row = rows.first().ok_or_else(|| Fault::from(no_answer()))?;
        let now = self.observe(get(row, 0)?, sent);
        match get::<Option<i64>>(row, 1)? {
            Some(number) => Ok(Took::Token(token(number)?)),
            None if now > deadline => Ok(Took::Late),
            None => Ok(Took::Busy),
        }
    }

    /// The server's clock has shown this to what was sent then.
    fn observe(&mut self, shown: i64, sent: Instant) -> u64 {
        let shown = u64::try_from(shown).unwrap_or(0);
        self.clock.observe(shown, sent, Clock::Boot.now());
        shown
    }

    /// Finds out whether the session is there, and the time.
    async fn ping(&mut self) -> Result<(), Fault> {
        let sent = Clock::Boot.now();
        let rows = self.fetch(PING, &[]).await?;
        if let Some(row) = rows.first() {
            self.observe(get(row, 0)?, sent);
        }
        Ok(())
    }

    /// Gives up a key that may be the session's. Without a connection there is nothing to give up.
    async fn drop_key(&mut self, key: i64) {
        if self.link.is_open()
            && let Err(fault) = self.fetch(FREE, &[Arg::Number(key)]).await
        {
            tracing::debug!(target: "dlock", error = %fault.error, "the session is ended, to be sure of its locks");
            self.lose();
        }
    }

    async fn renew(
        &mut self,
        claims: Vec<(LockName, ClaimId, Duration)>,
    ) -> Result<Vec<bool>, Error> {
        let now = Clock::Boot.now();
        if !self.held.is_empty() {
            // Whatever went wrong: it is not sure that the session is there.
            if let Err(fault) = self.ping().await {
                tracing::warn!(target: "dlock", error = %fault.error, "the session was lost, and all locks with it");
                self.lose();
            }
        }
        let mut kept = Vec::with_capacity(claims.len());
        for (name, claim, lease) in claims {
            let held = self.held.get_mut(&key(&name)).filter(|held| held.claim == claim);
            kept.push(held.is_some());
            if let Some(held) = held {
                held.until = now.saturating_add(lease);
            }
        }
        Ok(kept)
    }

    async fn give_back(&mut self, name: &LockName, claim: ClaimId) -> Result<Released, Error> {
        let key = key(name);
        if self.held.get(&key).is_none_or(|held| held.claim != claim) {
            return Ok(Released::AlreadyLost);
        }
        let freed = self.fetch(FREE, &[Arg::Number(key)]).await;
        match freed {
            Ok(rows) => {
                self.held.remove(&key);
                match rows.first().map(|row| get::<bool>(row, 0)) {
                    Some(Ok(true)) => Ok(Released::Released),
                    _ => Ok(Released::AlreadyLost),
                }
            }
            // It went with its session, or goes now.
            Err(fault) => {
                self.lose();
                tracing::debug!(target: "dlock", error = %fault.error, "a lock was given back with its session");
                Ok(Released::Released)
            }
        }
    }

    async fn look(&mut self, name: &LockName) -> Result<Seen, Error> {
        let (key, mut patience) = (key(name), self.patience());
        let args = [Arg::Number(key), Arg::Text(name.as_str())];
        let row = loop {
            match self.fetch(LOOK, &args).await {
                Ok(mut rows) if !rows.is_empty() => break rows.swap_remove(0),
                Ok(_) => return Err(Error::new(ErrorKind::Protocol, "no answer to a look")),
                Err(fault) => patience.after_unless_of_a_row(fault).await?,
            }
        };
        let last: Option<i64> = get(&row, 1).map_err(|fault| fault.error)?;
        Ok(Seen {
            is_held: get(&row, 0).map_err(|fault| fault.error)?,
            claim: self.held.get(&key).map(|held| held.claim),
            token: last.and_then(|last| token(last).ok()),
        })
    }

    /// Gives up what nobody has renewed.
    async fn expire(&mut self) {
        let now = Clock::Boot.now();
        let ended = self.held.iter().find(|(_, held)| held.until <= now).map(|(&key, _)| key);
        if let Some(key) = ended {
            self.held.remove(&key);
            self.drop_key(key).await;
        }
    }

    async fn sweep(&mut self) {
        let now = Clock::Boot.now();
        if now < self.swept.saturating_add(ROUND.min(self.retention)) {
            return;
        }
        self.swept = now;
        let age = i64::try_from(self.retention.as_micros()).unwrap_or(i64::MAX);
        if let Err(fault) = self.fetch(SWEEP, &[Arg::Number(age)]).await {
            tracing::debug!(target: "dlock", error = %fault.error, "could not remove old tokens");
        }
    }

    /// Runs a statement. Where that makes a new connection, everything held was lost before.
    async fn fetch(
        &mut self,
        sql: &'static str,
        args: &[Arg<'_>],
    ) -> Result<Vec<sqlx::postgres::PgRow>, Fault> {
        if !self.link.is_open() {
            self.held.clear();
        }
        let result = self.link.fetch(sql, args).await;
        if !self.link.is_open() {
            self.held.clear();
        }
        result
    }

    /// Ends the session, and with it whatever it has.
    fn lose(&mut self) {
        self.held.clear();
        self.link.drop_connection();
    }

    fn patience(&self) -> Patience {
        Patience::until(Clock::Boot.now().saturating_add(self.patience))
    }
}

/// Whether the server could not count further: the last token is the largest that there is.
fn is_out_of_range(error: &Error) -> bool {
    let source = std::error::Error::source(error);
    let error = source.and_then(|source| source.downcast_ref::<sqlx::Error>());
    let code = error.and_then(sqlx::Error::as_database_error).and_then(|error| error.code());
    code.as_deref() == Some("22003")
}

fn granted(token: FencingToken, since: Instant) -> Acquired {
    Acquired::Granted(Grant::new(token, 1, since))
}

fn token(number: i64) -> Result<FencingToken, Fault> {
    let token = u64::try_from(number).ok().and_then(|number| FencingToken::new(number).ok());
    token.ok_or_else(|| {
        Error::new(
            ErrorKind::Protocol,
            format!("the table dlock_advisory has the token {number}: repair the row"),
        )
        .with_certainty(Certainty::Unknown)
        .into()
    })
}
