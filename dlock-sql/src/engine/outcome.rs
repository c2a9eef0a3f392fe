//! The database's answer to an operation, and its meaning for the caller.
//!
//! An answer may belong to an earlier sending of the same operation. `in_doubt` records that, and
//! the conversions below take it into account.

use std::time::Duration;

use dlock_core::{
    Acquired, Certainty, Clock, Error, ErrorKind, FencingToken, Grant, Instant, Mode, Released,
    Renewed,
    machine::{Granted, Micros, Outcome, conflict, spent},
};

/// One moment on two clocks. `sent`, by the holder's clock, is before `now`, by the database's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockSample {
    /// A time just before the statement was sent.
    pub(crate) sent: Instant,
    /// The time that the statement read.
    pub(crate) now: Micros,
}

impl ClockSample {
    /// Returns the instant of the holder's clock that is at or before the database's time `at`.
    pub(crate) fn instant_of(self, at: Micros) -> Instant {
        match at.checked_sub(self.now) {
            Some(later) => self.sent.saturating_add(Duration::from_micros(later)),
            None => self.sent.saturating_sub(Duration::from_micros(self.now - at)),
        }
    }

    /// Converts the grant to the core's type.
    ///
    /// # Errors
    /// `Protocol` if the token in the database is invalid.
    pub(crate) fn grant(self, granted: Granted) -> Result<Grant, Error> {
        let token = FencingToken::new(granted.token).map_err(|error| {
            Error::new(
                ErrorKind::Protocol,
                "the store holds a fencing token that dlock never issues: check which other \
                 program writes to its table",
            )
            .with_source(error)
        })?;
        // After a clock step of the database the start could be in the future, and the holder would
        // rely on the lease for too long.
        let since = self.instant_of(granted.since).min(Clock::Boot.now());
        Ok(Grant::new(token, granted.block, since))
    }
}

/// The answer to an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpOutcome {
    pub(crate) outcome: Outcome,
    pub(crate) sample: ClockSample,
    /// The last token that the row remembers; 0 for none.
    pub(crate) last: u64,
    /// Whether an earlier sending of the same operation may have taken effect.
    pub(crate) in_doubt: bool,
}

impl OpOutcome {
    /// Converts it to the answer to an acquire of this mode.
    ///
    /// # Errors
    /// `Config(Capacity)` and `Config(Token)`.
    pub(crate) fn acquired(self, mode: Mode) -> Result<Acquired, Error> {
        match self.outcome {
            Outcome::Granted(granted) => Ok(Acquired::Granted(self.sample.grant(granted)?)),
            Outcome::Queued { .. } => Ok(Acquired::Queued),
            Outcome::Busy => Ok(Acquired::Busy),
            Outcome::Conflict { capacity } => Err(conflict(mode, capacity)),
            Outcome::Spent => Err(spent()),
            other => Err(unexpected(other)),
        }
    }

    /// Converts it to the answer to a renewal of a grant with this token. The row of a held claim
    /// is never deleted, and its last token never falls below the grant's. `outlasts_lease`: nor is
    /// the row deleted before the lease has ended, so that a missing token proves a loss of data.
    pub(crate) fn renewed(
        self,
        token: Option<FencingToken>,
        outlasts_lease: bool,
    ) -> Result<Renewed, Error> {
        let forgotten = outlasts_lease && token.is_some_and(|token| self.last < token.get());
        match self.outcome {
            // The database has lost the grant, but not the place in the queue, and the claim was
            // granted anew. Others may have held the lock in between.
            Outcome::Granted(granted) if token.is_some_and(|own| own.get() != granted.token) => {
                Ok(Renewed::Forgotten)
            }
            Outcome::Granted(_) => Ok(Renewed::Kept),
            Outcome::Queued { .. } | Outcome::Spent | Outcome::NotFound if forgotten => {
                Ok(Renewed::Forgotten)
            }
            // A late sending of the acquire may have queued the claim again after it was lost.
            Outcome::Queued { .. } | Outcome::Spent | Outcome::NotFound => Ok(Renewed::Lost),
            other => Err(unexpected(other)),
        }
    }

    /// Converts it to the answer to a waiting claim's heartbeat. Returns `None` while it still
    /// waits.
    ///
    /// # Errors
    /// `NotHeld` if its place in the queue has ended with its lease, `Config(Token)` if no token is
    /// left.
    pub(crate) fn granted(self) -> Result<Option<Grant>, Error> {
        match self.outcome {
            Outcome::Granted(granted) => self.sample.grant(granted).map(Some),
            Outcome::Queued { .. } => Ok(None),
            Outcome::Spent => Err(spent()),
            Outcome::NotFound => Err(Error::new(
                ErrorKind::NotHeld,
                "the claim expired while it waited in the queue: acquire the lock again",
            )),
            other => Err(unexpected(other)),
        }
    }

    /// Converts it to the answer to a release.
    pub(crate) fn released(self) -> Result<Released, Error> {
        match self.outcome {
            Outcome::Released => Ok(Released::Released),
            // An earlier sending, whose answer was lost, has released it.
            Outcome::NotFound if self.in_doubt => Ok(Released::Released),
            Outcome::NotFound => Ok(Released::AlreadyLost),
            other => Err(unexpected(other)),
        }
    }

    /// Converts it to the answer to a floor for tokens.
    pub(crate) fn raised(self) -> Result<(), Error> {
        match self.outcome {
            Outcome::Raised => Ok(()),
            other => Err(unexpected(other)),
        }
    }
}

fn unexpected(outcome: Outcome) -> Error {
    Error::new(
        ErrorKind::Protocol,
        format!(
            "the store answered {outcome:?}, which does not fit the request: check that all \
             programs have one version of dlock"
        ),
    )
    .with_certainty(Certainty::Unknown)
}

#[cfg(test)]
mod tests {
    use dlock_core::{ClaimId, ConfigIssue};

    use super::*;

    fn op_outcome(outcome: Outcome, in_doubt: bool) -> OpOutcome {
        let sample = ClockSample { sent: Instant::from_nanos(5_000_000), now: 1_000 };
        OpOutcome { outcome, sample, last: 7, in_doubt }
    }

    #[test]
    fn the_start_of_a_grant_is_computed_from_the_database_clock() {
        let sample = op_outcome(Outcome::Busy, false).sample;
        let since = |since| {
            let granted =
                Granted { claim: ClaimId::from_bits(1), token: 7, block: 2, since, home: 0 };
            sample.grant(granted).unwrap().since.as_nanos()
        };
        assert_eq!(since(1_000), 5_000_000);
        assert_eq!(since(400), 4_400_000);
        assert_eq!(since(1_500), 5_500_000);
    }

    /// The database's clock was set forward between the two.
    #[test]
    fn a_grant_never_begins_in_the_future() {
        let sample = ClockSample { sent: Clock::Boot.now(), now: 1_000 };
        let since = 3_600_000_000;
        let granted = Granted { claim: ClaimId::from_bits(1), token: 7, block: 1, since, home: 0 };
        assert!(sample.grant(granted).unwrap().since <= Clock::Boot.now());
    }

    #[test]
    fn a_waiting_claim_is_not_held() {
        let waits = op_outcome(Outcome::Queued { ahead: 1 }, false);
        assert_eq!(waits.renewed(None, true).unwrap(), Renewed::Lost);
        for outcome in [Outcome::NotFound, Outcome::Queued { ahead: 1 }] {
            for (token, expected) in [(7, Renewed::Lost), (8, Renewed::Forgotten)] {
                let token = FencingToken::new(token).ok();
                let renewed = |outlasts| op_outcome(outcome, false).renewed(token, outlasts);
                assert_eq!(renewed(true).unwrap(), expected);
                assert_eq!(renewed(false).unwrap(), Renewed::Lost);
            }
        }
        assert_eq!(waits.granted().unwrap(), None);
    }

    #[test]
    fn a_claim_that_was_granted_anew_has_lost_its_grant() {
        let granted =
            Granted { claim: ClaimId::from_bits(1), token: 5, block: 3, since: 1, home: 0 };
        for (token, expected) in
            [(4, Renewed::Forgotten), (5, Renewed::Kept), (7, Renewed::Forgotten)]
        {
            let token = FencingToken::new(token).ok();
            for outlasts_lease in [true, false] {
                let outcome = op_outcome(Outcome::Granted(granted), false);
                assert_eq!(outcome.renewed(token, outlasts_lease).unwrap(), expected);
            }
        }
        let of_unknown = op_outcome(Outcome::Granted(granted), false).renewed(None, true);
        assert_eq!(of_unknown.unwrap(), Renewed::Kept);
    }

    #[test]
    fn a_conflict_reports_both_capacities() {
        let mode = Mode::permits(1, 5).unwrap();
        let error =
            op_outcome(Outcome::Conflict { capacity: 3 }, false).acquired(mode).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Capacity));
        let text = error.to_string();
        assert!(text.contains("of 5 permits") && text.contains("of 3 permits"), "{text}");
    }

    #[test]
    fn a_release_sent_twice_is_not_a_loss() {
        assert_eq!(op_outcome(Outcome::NotFound, true).released().unwrap(), Released::Released);
        assert_eq!(op_outcome(Outcome::NotFound, false).released().unwrap(), Released::AlreadyLost);
    }

    #[test]
    fn an_outcome_of_another_operation_is_an_error() {
        assert!(op_outcome(Outcome::Released, false).acquired(Mode::Exclusive).is_err());
        assert!(op_outcome(Outcome::Busy, false).renewed(None, true).is_err());
        assert!(op_outcome(Outcome::Busy, false).released().is_err());
    }
}
