//! Acquire, renew and release in each scheme.
//!
//! An acquire takes several statements, and other clients may write between them. So the statement
//! that takes the row has its own condition: the primary key, or the version that was read. If the
//! process dies between two statements, it has taken nothing, or a row that is free after its
//! lease. If an answer is lost, the next attempt reads the row, finds its own claim there, and
//! renews it.

use std::{str::FromStr, time::Duration};

use dlock_core::{
    AcquireRequest, Acquired, Certainty, ClaimId, Clock, ConfigIssue, Error, ErrorKind, Exclusion,
    Fencing, FencingToken, Grant, Guarantees, Instant, LockName, Renewal, StoreClock,
    machine::spent,
};

use super::{Argument, PlainConn, PlainRead, PlainRow, Statements};
use crate::engine::Fault;

/// A margin between an instant and a time of the clock that were read at about the same time.
const SLACK: Duration = Duration::from_millis(10);

/// A table scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scheme {
    /// Insert a row with a unique name to acquire, delete it to release.
    Row,
    /// A row with state and version, written by compare-and-set. The version is the fencing token.
    Version,
}

impl FromStr for Scheme {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "row" => Ok(Self::Row),
            "version" => Ok(Self::Version),
            _ => Err(Error::config(
                ConfigIssue::OptionValue,
                "dlock.plain can't be read: write row or version",
            )),
        }
    }
}

/// Converts a lease to the form that statements take.
fn micros(lease: Duration) -> i64 {
    // One microsecond more, since the clock is truncated to whole microseconds at either end.
    i64::try_from(lease.as_micros()).unwrap_or(i64::MAX / 4).saturating_add(1)
}

impl Scheme {
    /// Returns the guarantees of this scheme on a database with these guarantees.
    pub(super) fn guarantees(self, database: Guarantees) -> Guarantees {
        let given =
            Guarantees::WEAKEST.with_exclusion(database.exclusion).with_scope(database.scope);
        match self {
            Self::Row => given,
            // Only the row has the last version. After a crash that loses the last grants, the next
            // grants get the same numbers again.
            Self::Version => match database.exclusion {
                Exclusion::Nothing => given.with_fencing(Fencing::Volatile),
                _ => given.with_fencing(Fencing::Durable),
            },
        }
    }

    /// Takes the row, or reports that it is busy.
    pub(super) async fn acquire<C: PlainConn>(
        self,
        table: &mut PlainTable<C>,
        request: &AcquireRequest,
        sent: Sent,
    ) -> Result<Acquired, Fault> {
        let holder = request.claim.to_string();
        let insert = [
            Argument::Text(request.name.as_str()),
            Argument::Text(&holder),
            Argument::Number(micros(request.lease)),
            Argument::Number(sent.deadline),
        ];
        let texts = table.texts;
        // The row scheme deletes rows, so an insert is the likely case. In the version scheme the
        // row exists after its first use, so a read comes first.
        if self == Self::Row && table.change(texts.insert, &insert).await? == 1 {
            return self.taken(table, request, sent).await;
        }
        let read = table.read(&request.name).await?;
        if read.now > sent.deadline {
            return Err(Fault::too_late());
        }
        let Some(seen) = &read.row else {
            return match table.change(texts.insert, &insert).await? {
                1 => self.taken(table, request, sent).await,
                _ => refused(sent),
            };
        };
        if seen.is_held && seen.holder == holder {
            // An earlier request, whose answer was lost, has taken it.
            return match self
                .renew(table, &Renewal::new(request.as_claim(), request.mode, request.lease), sent)
                .await?
            {
                true => grant(self, &read, seen, sent.at),
                false => Ok(Acquired::Busy),
            };
        }
        if seen.is_held && seen.left > 0 {
            return Ok(Acquired::Busy);
        }
        let took = match self {
            Self::Row => {
                table.change(texts.clear, &insert[..1]).await?;
                table.change(texts.insert, &insert).await?
            }
            Self::Version if seen.version == i64::MAX => return Err(spent().into()),
            Self::Version => {
                let version = Argument::Number(seen.version);
                let take = [insert[1], insert[2], insert[0], version, insert[3]];
                table.change(texts.take, &take).await?
            }
        };
        match took {
            1 => self.taken(table, request, sent).await,
            _ => refused(sent),
        }
    }

    /// Returns the grant of a row that has just been taken. Reads the row again, because the lease
    /// may have ended since, and because the row has the version, which is the token.
    async fn taken<C: PlainConn>(
        self,
        table: &mut PlainTable<C>,
        request: &AcquireRequest,
        sent: Sent,
    ) -> Result<Acquired, Fault> {
        let read = table.read(&request.name).await?;
        match &read.row {
            Some(seen) if seen.is_held && seen.holder == request.claim.to_string() => {
                grant(self, &read, seen, sent.at)
            }
            _ => Ok(Acquired::Busy),
        }
    }

    /// Renews the lease. Returns false if it had ended.
    pub(super) async fn renew<C: PlainConn>(
        self,
        table: &mut PlainTable<C>,
        renewal: &Renewal,
        sent: Sent,
    ) -> Result<bool, Fault> {
        let holder = renewal.claim.id.to_string();
        // A lease is only extended, unless this is the last renewal of the claim. An earlier one
        // that arrives later has no effect after its deadline; before that it extends the lease
        // again.
        let at_most = if renewal.is_last { 0 } else { i64::MAX };
        let arguments = [
            Argument::Number(micros(renewal.lease)),
            Argument::Number(at_most),
            Argument::Text(renewal.claim.name.as_str()),
            Argument::Text(&holder),
            Argument::Number(sent.deadline),
        ];
        let renewed = table.change(table.texts.renew, &arguments).await? == 1;
        if !renewed
            && sent.may_be_late()
            && table.read(&renewal.claim.name).await?.now > sent.deadline
        {
            return Err(Fault::too_late());
        }
        Ok(renewed)
    }

    /// Releases the row. Returns false if it was not this claim's.
    pub(super) async fn release<C: PlainConn>(
        self,
        table: &mut PlainTable<C>,
        name: &LockName,
        claim: ClaimId,
    ) -> Result<bool, Fault> {
        let holder = claim.to_string();
        let arguments = [Argument::Text(name.as_str()), Argument::Text(&holder)];
        let statement = match self {
            Self::Row => table.texts.delete,
            Self::Version => table.texts.free,
        };
        Ok(table.change(statement, &arguments).await? == 1)
    }
}

/// Interprets a statement that changed nothing: another client was faster, or the statement came
/// after its deadline.
fn refused(sent: Sent) -> Result<Acquired, Fault> {
    if sent.may_be_late() { Err(Fault::too_late()) } else { Ok(Acquired::Busy) }
}

fn grant(
    scheme: Scheme,
    read: &PlainRead,
    seen: &PlainRow,
    sent: Instant,
) -> Result<Acquired, Fault> {
    let number = match scheme {
        // It orders nothing, and only distinguishes the grants.
        Scheme::Row => read.now,
        Scheme::Version => seen.version,
    };
    let token = u64::try_from(number).ok().and_then(|number| FencingToken::new(number).ok());
    let token = token.ok_or_else(|| {
        Error::new(
            ErrorKind::Protocol,
            format!("the row has version {number}, which is not a fencing token: repair the row"),
        )
        .with_certainty(Certainty::Unknown)
    })?;
    // One token for each grant, since other programs count the version like this.
    Ok(Acquired::Granted(Grant::new(token, 1, sent)))
}

/// The table, and the clock of its database. Every read shows the clock, so deadlines follow it. A
/// deadline is by that clock, because only the database can refuse a statement that arrives late.
#[derive(Debug)]
pub(super) struct PlainTable<C> {
    pub(super) conn: C,
    pub(super) texts: Statements,
    pub(super) response_timeout: Duration,
    clock: StoreClock,
}

/// The times of a request that has a deadline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// A time just before it is sent.
    at: Instant,
    /// The deadline by the database's clock. Zero if the clock is not known: then the statement
    /// does nothing.
    deadline: i64,
    /// From this time on the deadline may have passed.
    ends: Instant,
    /// At this time the deadline has certainly passed.
    pub(super) over: Instant,
}

impl Sent {
    /// Returns whether the database may have refused a statement because of its deadline.
    fn may_be_late(&self) -> bool {
        self.deadline == 0 || Clock::Boot.now() >= self.ends
    }
}

impl<C: PlainConn> PlainTable<C> {
    pub(super) fn new(conn: C, texts: Statements, response_timeout: Duration) -> Self {
        Self { conn, texts, response_timeout, clock: StoreClock::new() }
    }

    /// Returns the times of a request that is sent now and is useless after `useful`.
    pub(super) fn sending(&self, useful: Duration) -> Sent {
        let (at, useful) = (Clock::Boot.now(), useful.min(self.response_timeout));
        let deadline = self.clock.deadline(at, useful).unwrap_or(0);
        Sent {
            at,
            deadline: i64::try_from(deadline).unwrap_or(i64::MAX),
            ends: at.saturating_add(useful / 2),
            over: at.saturating_add(useful).saturating_add(SLACK),
        }
    }

    async fn change(
        &mut self,
        statement: &'static str,
        arguments: &[Argument<'_>],
    ) -> Result<u64, Fault> {
        self.conn.change(statement, arguments).await
    }

    pub(super) async fn read(&mut self, name: &LockName) -> Result<PlainRead, Fault> {
        let sent = Clock::Boot.now();
        let read = self.conn.read(self.texts.read, name).await?;
        let shown = u64::try_from(read.now).unwrap_or(0);
        self.clock.observe(shown, sent, Clock::Boot.now());
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_tokens_where_the_database_keeps_them() {
        let of = |scheme: Scheme, exclusion| {
            scheme.guarantees(Guarantees::WEAKEST.with_exclusion(exclusion)).fencing
        };
        assert_eq!(of(Scheme::Version, Exclusion::Restart), Fencing::Durable);
        assert_eq!(of(Scheme::Version, Exclusion::Nothing), Fencing::Volatile);
        assert_eq!(of(Scheme::Row, Exclusion::Restart), Fencing::None);
    }
}
