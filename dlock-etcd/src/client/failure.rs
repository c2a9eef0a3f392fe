//! The meaning of the errors of etcd and of the connection.

use std::borrow::Cow;

use dlock_core::{Certainty, Error};

/// What failed. The protocol decides by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// There is no connection, or it broke, or the member stops.
    Disconnected,
    /// No answer before the deadline.
    Late,
    /// The member has no leader, or no majority answers it: `no leader`, `leader changed`, `request
    /// timed out`.
    NoLeader,
    /// The member is a learner, which serves nothing but its status.
    Learner,
    /// The quota of the database is used up, and the alarm `NOSPACE` stands.
    NoSpace,
    /// The lease does not exist any more.
    LeaseNotFound,
    /// The revision was compacted.
    Compacted,
    /// A watch had too many messages that nobody took.
    Lagged,
    /// The user has no right to do this.
    Denied,
    /// The member does not accept the user or the password, or wants one.
    WrongUser,
    /// The token or the revision of the rights is out of date, also after a new login.
    Token,
    /// The request is too large, or has too many operations.
    TooLarge,
    /// The member refuses requests, because it has too many.
    Overloaded,
    /// The data of the members differ (the alarm `CORRUPT`).
    Corrupt,
    /// The TLS files can't be used, or the certificates don't fit.
    Tls,
    /// The server is not etcd, or answers in a way that etcd does not.
    Protocol,
}

/// An error of a request.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    kind: FailureKind,
    certainty: Certainty,
    /// For people, without secrets.
    text: Cow<'static, str>,
}

impl Failure {
    pub(crate) fn kind(&self) -> FailureKind {
        self.kind
    }

    /// Whether the request may have been applied, or may still be applied.
    pub(crate) fn certainty(&self) -> Certainty {
        self.certainty
    }
}

impl From<Failure> for Error {
    /// Adds the remedy.
    fn from(failure: Failure) -> Self {
        let _ = failure.text;
        unimplemented!()
    }
}
