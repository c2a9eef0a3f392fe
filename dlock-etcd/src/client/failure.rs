//! The meaning of the errors of etcd and of the connection.
//!
//! etcd's gRPC codes are coarse (`Unavailable` is a member that stops as well as a vote that was not
//! answered), and differ between versions. Its texts are stable, so the table goes by these.

use std::{borrow::Cow, error::Error as StdError, fmt};

use dlock_core::{
    Certainty::{self, NotApplied, Unknown},
    ConfigIssue, Error, ErrorKind,
};
use tonic::{Code, Status};

/// The kind of a [`Failure`], for the protocol's decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// There is no connection, or it broke, or the member stops.
    Disconnected,
    /// No answer before the deadline.
    Late,
    /// The member has no leader, or no majority answers it: `no leader`, `leader changed`, `request
    /// timed out`.
    NoLeader,
    /// The member is a learner, which answers little more than its status.
    Learner,
    /// The quota of the database is used up, and the alarm `NOSPACE` is active.
    NoSpace,
    /// The lease does not exist any more.
    LeaseNotFound,
    /// The revision was compacted.
    Compacted,
    /// The user lacks a right.
    Denied,
    /// The member refuses the user and the password, or needs them and has none.
    WrongUser,
    /// The token or the revision of the rights is out of date, even after a new login.
    Token,
    /// The member has authentication switched off.
    AuthDisabled,
    /// The request is too large, or has too many operations.
    TooLarge,
    /// The member refuses requests, because it has too many.
    Overloaded,
    /// The data of the members differ (the alarm `CORRUPT`).
    Corrupt,
    /// The TLS files can't be used.
    TlsFiles,
    /// There is no connection by TLS.
    Tls,
    /// The server is not etcd, or does not answer as etcd does.
    Protocol,
    /// The server is a gRPC proxy.
    Proxy,
    /// The server allows too few requests at a time on a connection.
    FewStreams,
    /// An error that this table does not have.
    Unclear,
}

use FailureKind::*;

/// Parts of etcd's messages. Where the outcome is unknown, etcd has been seen to apply such a
/// request: later, or even although it answered the error.
const TEXTS: &[(&str, FailureKind, Certainty)] = &[
    ("lease not found", LeaseNotFound, NotApplied),
    ("database space exceeded", NoSpace, Unknown),
    ("has been compacted", Compacted, NotApplied),
    ("is a future revision", NoLeader, NotApplied),
    ("permission denied", Denied, NotApplied),
    ("invalid auth token", Token, NotApplied),
    ("revision of auth store is old", Token, NotApplied),
    ("revision in header is old", Token, NotApplied),
    // The answer to a request without a token.
    ("user name is empty", Token, NotApplied),
    ("authentication failed", WrongUser, NotApplied),
    ("user name not found", WrongUser, NotApplied),
    ("authentication is not enabled", AuthDisabled, NotApplied),
    ("too many operations", TooLarge, NotApplied),
    ("request is too large", TooLarge, NotApplied),
    ("received message larger than max", TooLarge, NotApplied),
    ("too many requests", Overloaded, NotApplied),
    ("not supported for learner", Learner, NotApplied),
    ("no leader", NoLeader, Unknown),
    ("not leader", NoLeader, Unknown),
    // While the leadership moves.
    ("raft proposal dropped", NoLeader, Unknown),
    ("leader changed", NoLeader, Unknown),
    ("request timed out", NoLeader, Unknown),
    ("unhealthy cluster", NoLeader, Unknown),
    // Before the version of the cluster is known.
    ("not capable", NoLeader, Unknown),
    ("server stopped", Disconnected, Unknown),
    // A member that stops, or was removed from the cluster.
    ("raft: stopped", Disconnected, Unknown),
    ("removed from the cluster", Disconnected, Unknown),
    ("watch canceled", Disconnected, Unknown),
    ("context canceled", Disconnected, Unknown),
    ("context deadline exceeded", Late, Unknown),
    ("corrupt", Corrupt, Unknown),
];

/// An error of a request.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    kind: FailureKind,
    certainty: Certainty,
    /// The cause, without secrets.
    text: Cow<'static, str>,
}

impl Failure {
    pub(crate) fn new(
        kind: FailureKind,
        certainty: Certainty,
        text: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { kind, certainty, text: text.into() }
    }

    /// Returns the failure of an answer that says so with a text of etcd: an unary answer, or the
    /// reason why a watch has ended.
    fn from_text(text: &str, otherwise: (FailureKind, Certainty)) -> Self {
        let known = TEXTS.iter().find(|(part, ..)| text.contains(part));
        let (kind, certainty) = known.map_or(otherwise, |known| (known.1, known.2));
        Self::new(kind, certainty, format!("{:.300}", text.escape_debug().to_string()))
    }

    /// Returns the failure of a watch that the server has ended.
    pub(super) fn of_watch(reason: &str, compacted: bool) -> Self {
        let kind = if compacted { Compacted } else { Disconnected };
        let text = if reason.is_empty() { "the server has ended the watch" } else { reason };
        Self { certainty: NotApplied, ..Self::from_text(text, (kind, NotApplied)) }
    }

    /// Returns the failure of a connection that has ended, for a request that may have been sent.
    pub(super) fn broken(error: &(dyn StdError + 'static)) -> Self {
        Self::new(Disconnected, Unknown, causes(error))
    }

    pub(super) fn late() -> Self {
        Self::new(Late, Unknown, "no answer in time")
    }

    pub(crate) fn proxy() -> Self {
        Self::new(Proxy, NotApplied, "it does not answer as a member does")
    }

    pub(crate) fn kind(&self) -> FailureKind {
        self.kind
    }

    /// Whether the request may have been applied, or may still be applied.
    pub(crate) fn certainty(&self) -> Certainty {
        self.certainty
    }

    /// Sets that the request has not been applied and will not be.
    pub(super) fn not_applied(self) -> Self {
        Self { certainty: NotApplied, ..self }
    }

    /// Names the endpoint that was dialled. Nothing was applied.
    pub(super) fn of_dialing(self, endpoint: &str) -> Self {
        let text = format!("{endpoint:.80}: {}", self.text);
        Self { certainty: NotApplied, text: text.into(), ..self }
    }

    pub(crate) fn with_kind(self, kind: FailureKind) -> Self {
        Self { kind, ..self }
    }
}

/// A request that was never written to the connection.
#[derive(Debug)]
pub(super) struct NotSent;

impl fmt::Display for NotSent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the connection has ended")
    }
}

impl StdError for NotSent {}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        // An answer has no source: this comes from the connection.
        if let Some(error) = status.source() {
            let failure = Self::broken(error);
            return if error.is::<NotSent>() { failure.not_applied() } else { failure };
        }
        let otherwise = match status.code() {
            Code::Unavailable | Code::Cancelled => (Disconnected, Unknown),
            Code::DeadlineExceeded => (Late, Unknown),
            Code::Unauthenticated => (Token, NotApplied),
            Code::PermissionDenied => (Denied, NotApplied),
            Code::InvalidArgument | Code::Unimplemented => (Protocol, NotApplied),
            _ => (Unclear, Unknown),
        };
        let message = status.message();
        Self::from_text(
            if message.is_empty() { status.code().description() } else { message },
            otherwise,
        )
    }
}

/// Returns an error with its causes, in one line.
fn causes(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl StdError for Failure {}

impl From<Failure> for Error {
    /// Adds the remedy.
    fn from(failure: Failure) -> Self {
        let access = ErrorKind::Config(ConfigIssue::Access);
        let (kind, message) = match failure.kind {
            Disconnected => (
                ErrorKind::Unavailable,
                "no connection to etcd: check that the members run, and that the port is their \
                 port for clients, without TLS (else use etcds)",
            ),
            Tls => (
                ErrorKind::Unavailable,
                "no connection to etcd by TLS: check that the members run, that the port is one for \
                 TLS, that dlock.tls_ca is the authority of their certificates, that these are for \
                 the names in the URL, and that the members accept dlock.tls_cert and \
                 dlock.tls_key",
            ),
            Late => (
                ErrorKind::Unavailable,
                "no answer from etcd in time: check that the members run and that a majority of \
                 them is connected",
            ),
            NoLeader => (
                ErrorKind::Unavailable,
                "the members of etcd have no leader that a majority follows: check that a majority \
                 of them runs and is connected, and that their disks are not too slow",
            ),
            Learner => (
                ErrorKind::Unavailable,
                "the member is a learner and serves no locks: write the addresses of voting \
                 members in the URL, or promote it",
            ),
            NoSpace => (
                ErrorKind::Unavailable,
                "the quota of etcd's database is used up: compact it, run etcdctl defrag on each \
                 member and etcdctl alarm disarm, and set --auto-compaction-retention",
            ),
            LeaseNotFound => (
                ErrorKind::Unavailable,
                "the session has ended, and with it all its locks: acquire them again; dlock opens \
                 a new session",
            ),
            Compacted => (
                ErrorKind::Unavailable,
                "etcd has compacted what it had to tell: compact less often, or reduce its load",
            ),
            Denied => (
                access,
                "no rights: the role of the user needs readwrite on all keys below dlock.root \
                 (etcdctl role grant-permission ROLE --prefix=true readwrite ROOT/)",
            ),
            WrongUser => (
                access,
                "etcd does not accept the credentials: check user and password in the URL \
                 (etcd://user:password@host)",
            ),
            AuthDisabled => (
                access,
                "etcd has no users: remove user and password from the URL, or run etcdctl auth \
                 enable",
            ),
            Token => (
                ErrorKind::Unavailable,
                "etcd does not accept the login that it has accepted before: try again, since users \
                 or roles may be changing; if this stays, check the password",
            ),
            TooLarge => (
                ErrorKind::Unsupported,
                "the request is too large for etcd (--max-txn-ops, --max-request-bytes): acquire \
                 fewer locks at once, or use shorter names",
            ),
            Overloaded => (
                ErrorKind::Unavailable,
                "etcd is overloaded and refuses requests: wait, or reduce its load",
            ),
            Corrupt => (
                ErrorKind::Unavailable,
                "the members of etcd have different data (alarm CORRUPT): replace the members that \
                 are wrong",
            ),
            TlsFiles => (
                access,
                "the files of dlock.tls_* can't be used: check that they are PEM files and belong \
                 together",
            ),
            Proxy => (
                ErrorKind::Unsupported,
                "the endpoint is a gRPC proxy, which answers for leases and watches itself: give \
                 the endpoints of the members",
            ),
            FewStreams => (
                ErrorKind::Unsupported,
                "etcd allows too few requests at a time on a connection: start the member without \
                 --max-concurrent-streams, or with at least 100",
            ),
            Unclear => (
                ErrorKind::Unavailable,
                "etcd answers with an error that dlock does not know: look into the log of the \
                 member, and try again",
            ),
            Protocol => (
                ErrorKind::Protocol,
                "the server does not answer like etcd 3.4 or later: check the address and the \
                 version",
            ),
        };
        Self::new(kind, format!("{message} ({})", failure.text))
            .with_certainty(failure.certainty)
            .with_source(failure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_its_kind_certainty_and_remedy() {
        use ErrorKind::{Config, Unavailable, Unsupported};
        let access = Config(ConfigIssue::Access);
        for (code, text, kind, certainty, shown, says) in [
            (
                Code::NotFound,
                "etcdserver: requested lease not found",
                LeaseNotFound,
                NotApplied,
                Unavailable,
                "session",
            ),
            (
                Code::ResourceExhausted,
                "etcdserver: mvcc: database space exceeded",
                NoSpace,
                Unknown,
                Unavailable,
                "defrag",
            ),
            (
                Code::OutOfRange,
                "etcdserver: mvcc: required revision has been compacted",
                Compacted,
                NotApplied,
                Unavailable,
                "compact less",
            ),
            (
                Code::PermissionDenied,
                "etcdserver: permission denied",
                Denied,
                NotApplied,
                access,
                "grant-permission",
            ),
            (
                Code::Unauthenticated,
                "etcdserver: invalid auth token",
                Token,
                NotApplied,
                Unavailable,
                "again",
            ),
            (
                Code::InvalidArgument,
                "etcdserver: revision of auth store is old",
                Token,
                NotApplied,
                Unavailable,
                "again",
            ),
            (
                Code::InvalidArgument,
                "etcdserver: user name is empty",
                Token,
                NotApplied,
                Unavailable,
                "again",
            ),
            (
                Code::InvalidArgument,
                "etcdserver: authentication failed, invalid user ID or password",
                WrongUser,
                NotApplied,
                access,
                "password",
            ),
            (
                Code::FailedPrecondition,
                "etcdserver: authentication is not enabled",
                AuthDisabled,
                NotApplied,
                access,
                "auth enable",
            ),
            (
                Code::InvalidArgument,
                "etcdserver: too many operations in txn request",
                TooLarge,
                NotApplied,
                Unsupported,
                "fewer",
            ),
            (
                Code::InvalidArgument,
                "etcdserver: request is too large",
                TooLarge,
                NotApplied,
                Unsupported,
                "fewer",
            ),
            (
                Code::ResourceExhausted,
                "etcdserver: too many requests",
                Overloaded,
                NotApplied,
                Unavailable,
                "overloaded",
            ),
            (
                Code::FailedPrecondition,
                "etcdserver: rpc not supported for learner",
                Learner,
                NotApplied,
                Unavailable,
                "promote",
            ),
            (
                Code::Unavailable,
                "etcdserver: no leader",
                NoLeader,
                Unknown,
                Unavailable,
                "majority",
            ),
            (
                Code::Unavailable,
                "etcdserver: request timed out, possibly due to previous leader failure",
                NoLeader,
                Unknown,
                Unavailable,
                "majority",
            ),
            (
                Code::Unavailable,
                "etcdserver: server stopped",
                Disconnected,
                Unknown,
                Unavailable,
                "members run",
            ),
            (
                Code::DataLoss,
                "etcdserver: corrupt cluster",
                Corrupt,
                Unknown,
                Unavailable,
                "CORRUPT",
            ),
            (Code::Unimplemented, "", Protocol, NotApplied, ErrorKind::Protocol, "version"),
            (Code::Internal, "odd\nline", Unclear, Unknown, Unavailable, "odd\\nline"),
            (Code::Unknown, "raft: stopped", Disconnected, Unknown, Unavailable, "members run"),
            (Code::DeadlineExceeded, "", Late, Unknown, Unavailable, "majority"),
        ] {
            let failure = Failure::from(Status::new(code, text));
            assert_eq!((failure.kind(), failure.certainty()), (kind, certainty), "{text}");
            let error = Error::from(failure);
            assert_eq!((error.kind(), error.certainty()), (shown, certainty), "{text}");
            assert!(error.to_string().contains(says), "{error}");
        }
    }

    #[test]
    fn a_watch_that_the_server_ends_applies_nothing() {
        for (reason, compacted, kind) in [
            ("", false, Disconnected),
            ("", true, Compacted),
            ("etcdserver: permission denied", false, Denied),
            ("etcdserver: invalid auth token", false, Token),
        ] {
            let failure = Failure::of_watch(reason, compacted);
            assert_eq!((failure.kind(), failure.certainty()), (kind, NotApplied), "{reason}");
        }
    }

    #[test]
    fn an_error_of_the_connection_names_its_causes() {
        let mut status = Status::unknown("transport error");
        status.set_source(std::sync::Arc::new(std::io::Error::other("reset by peer")));
        let failure = Failure::from(status);
        assert_eq!((failure.kind(), failure.certainty()), (Disconnected, Unknown));
        assert_eq!(failure.to_string(), "reset by peer");
    }

    /// The errors of `rpctypes` and of raft, from etcd 3.4 to 3.7, that a client can meet.
    #[test]
    fn errors_of_all_versions_are_sorted() {
        for (code, text, kind, certainty) in [
            (Code::NotFound, "lease not found", LeaseNotFound, NotApplied),
            (
                Code::OutOfRange,
                "mvcc: required revision is a future revision",
                NoLeader,
                NotApplied,
            ),
            (Code::Unauthenticated, "invalid auth token", Token, NotApplied),
            (Code::InvalidArgument, "invalid auth management", Protocol, NotApplied),
            (Code::FailedPrecondition, "user name not found", WrongUser, NotApplied),
            (Code::InvalidArgument, "key is not provided", Protocol, NotApplied),
            (Code::InvalidArgument, "duplicate key given in txn request", Protocol, NotApplied),
            (Code::Unimplemented, "unknown service etcdserverpb.KV", Protocol, NotApplied),
            (Code::FailedPrecondition, "not leader", NoLeader, Unknown),
            (Code::Unavailable, "leader changed", NoLeader, Unknown),
            (Code::Unavailable, "not capable", NoLeader, Unknown),
            (Code::FailedPrecondition, "not capable", NoLeader, Unknown),
            (Code::Unavailable, "unhealthy cluster", NoLeader, Unknown),
            (Code::Unavailable, "request timed out", NoLeader, Unknown),
            (
                Code::Unavailable,
                "request timed out, waiting for the applied index took too long",
                NoLeader,
                Unknown,
            ),
            (
                Code::Unavailable,
                "request timed out, possibly due to connection lost",
                NoLeader,
                Unknown,
            ),
            (Code::Unknown, "raft proposal dropped", NoLeader, Unknown),
            (Code::Unknown, "raft: stopped", Disconnected, Unknown),
            (
                Code::Unknown,
                "the member has been permanently removed from the cluster",
                Disconnected,
                Unknown,
            ),
            (Code::Cancelled, "watch canceled", Disconnected, Unknown),
            (Code::Unknown, "context canceled", Disconnected, Unknown),
            (Code::Unknown, "context deadline exceeded", Late, Unknown),
            (Code::Unavailable, "transport is closing", Disconnected, Unknown),
            // Nobody knows what such a request has done.
            (Code::Unknown, "a text of a later version", Unclear, Unknown),
            (Code::FailedPrecondition, "a text of a later version", Unclear, Unknown),
            (Code::Internal, "a panic", Unclear, Unknown),
        ] {
            for text in [text.to_owned(), format!("etcdserver: {text}")] {
                let failure = Failure::from(Status::new(code, &text));
                assert_eq!((failure.kind(), failure.certainty()), (kind, certainty), "{text}");
            }
        }
    }
}
