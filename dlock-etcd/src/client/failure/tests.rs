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
        (Code::Unavailable, "etcdserver: no leader", NoLeader, Unknown, Unavailable, "majority"),
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
        (Code::DataLoss, "etcdserver: corrupt cluster", Corrupt, Unknown, Unavailable, "CORRUPT"),
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
        (Code::OutOfRange, "mvcc: required revision is a future revision", NoLeader, NotApplied),
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
