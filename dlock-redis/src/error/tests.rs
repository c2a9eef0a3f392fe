//! The texts of servers and the driver, and the errors that dlock makes of them.

use super::*;

/// Returns the error that the driver makes of a server's answer.
fn answer(text: &str) -> RedisError {
    match redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap() {
        redis::Value::ServerError(error) => error.into(),
        other => panic!("{other:?}"),
    }
}

fn io(kind: std::io::ErrorKind, text: &'static str) -> RedisError {
    std::io::Error::new(kind, text).into()
}

const ACCESS: ErrorKind = ErrorKind::Config(ConfigIssue::Access);
const URL: ErrorKind = ErrorKind::Config(ConfigIssue::Url);

/// The text of a server, the kind of error, and a text that the message must contain.
const ANSWERS: [(&str, ErrorKind, &str); 46] = [
    (
        "ERR DLOCK format 9 in the key dlock:{0}:a script: 1, on @user_script:1.",
        ErrorKind::Protocol,
        "has format 9",
    ),
    (
        "ERR DLOCK the key dlock:{0}:DLOCK format 9 is not of dlock script: 1, on @user_script:1.",
        ErrorKind::Protocol,
        "dlock.prefix",
    ),
    ("ERR no such key dlock:{0}:DLOCK format 9 a", ErrorKind::Protocol, "no such key"),
    (
        "ERR DLOCK the waiter 0a in the key dlock:{0}w:a is not of dlock script: 1",
        ErrorKind::Protocol,
        "HDEL KEY CLAIM",
    ),
    (
        "WRONGPASS invalid username-password pair or user is disabled.",
        ACCESS,
        "password in the URL",
    ),
    ("NOAUTH Authentication required.", ACCESS, "password in the URL"),
    ("ERR invalid password", ACCESS, "password in the URL"),
    ("NOPERM this user has no permissions to run the 'evalsha' command", ACCESS, "ACL SETUSER"),
    ("NOPERM No permissions to access a key", ACCESS, "~dlock:*"),
    // Within scripts, by servers before 7.0, by 7.0 and by 7.2.
    (
        "ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -NOPERM The user executing the script can't run this command or subcommand",
        ACCESS,
        "ACL SETUSER",
    ),
    (
        "ERR The user executing the script can't run this command or subcommand script: 1, on @user_script:1.",
        ACCESS,
        "ACL SETUSER",
    ),
    (
        "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments script: 1",
        ACCESS,
        "~dlock:*",
    ),
    (
        "ERR The user executing the script can't publish to the channel mentioned in the command script: 1",
        ACCESS,
        "&dlock:*",
    ),
    (
        "NOPERM ACL failure in script: User u has no permissions to run the 'set' command",
        ACCESS,
        "ACL SETUSER",
    ),
    (
        "WRONGTYPE Operation against a key holding the wrong kind of value",
        ErrorKind::Protocol,
        "dlock.prefix",
    ),
    (
        "ERR DLOCK the key dlock:{0}:a is not of dlock script: 1",
        ErrorKind::Protocol,
        "dlock.prefix",
    ),
    // A lock's name may contain any word.
    (
        "ERR DLOCK the key dlock:{0}:WRONGPASS NOPERM OOM is not of dlock",
        ErrorKind::Protocol,
        "dlock.prefix",
    ),
    (
        "OOM command not allowed when used memory > 'maxmemory'.",
        ErrorKind::Unavailable,
        "maxmemory",
    ),
    (
        "OOM command not allowed when used memory > 'maxmemory'. script: 1, on @user_script:1.",
        ErrorKind::Unavailable,
        "maxmemory",
    ),
    (
        "ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -OOM command not allowed when used memory > 'maxmemory'.",
        ErrorKind::Unavailable,
        "maxmemory",
    ),
    ("ERR max number of clients reached", ErrorKind::Unavailable, "maxclients"),
    (
        "READONLY You can't write against a read only replica.",
        ErrorKind::Unavailable,
        "address of the master",
    ),
    ("LOADING Redis is loading the dataset in memory", ErrorKind::Unavailable, "loading"),
    (
        "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
        ErrorKind::Unavailable,
        "SCRIPT KILL",
    ),
    (
        "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
        ErrorKind::Unavailable,
        "disk",
    ),
    (
        "NOREPLICAS Not enough good replicas to write.",
        ErrorKind::Unavailable,
        "min-replicas-to-write",
    ),
    (
        "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
        ErrorKind::Unavailable,
        "replica",
    ),
    (
        "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        ErrorKind::Unavailable,
        "can't serve",
    ),
    ("CLUSTERDOWN Hash slot not served", ErrorKind::Unavailable, "CLUSTER INFO"),
    (
        "ERR unknown command 'EVAL', with args beginning with: 'local key=KEYS[1]' '1' 'dlock:{0}:a' ",
        ErrorKind::Unsupported,
        "rename-command",
    ),
    (
        "ERR unknown command `EVALSHA`, with args beginning with: ",
        ErrorKind::Unsupported,
        "EVALSHA",
    ),
    // Within scripts, by Redis before 7.0, Redis 7.0 and Valkey; and by services.
    (
        "ERR Error running script (call to f_1): @user_script:1: @user_script: 1: Unknown Redis command called from Lua script",
        ErrorKind::Unsupported,
        "rename-command",
    ),
    (
        "ERR Unknown Redis command called from script script: 90eba, on @user_script:1.",
        ErrorKind::Unsupported,
        "rename-command",
    ),
    (
        "ERR Unknown command called from script script: 90eba, on @user_script:1.",
        ErrorKind::Unsupported,
        "rename-command",
    ),
    ("ERR Command is not available: 'EVAL'.", ErrorKind::Unsupported, "service"),
    ("MOVED 1 127.0.0.1:1", URL, "redis+cluster://"),
    ("CROSSSLOT Keys in request don't hash to the same slot", URL, "redis+cluster://"),
    ("ERR This instance has cluster support disabled", URL, "redis:// instead"),
    ("ERR DB index is out of range", URL, "databases"),
    (
        "ERR unknown command 'SENTINEL', with args beginning with: 'GET-MASTER-ADDR-BY-NAME' 'm' ",
        URL,
        "addresses of the sentinels",
    ),
    (
        "ERR unknown command `SENTINEL`, with args beginning with: ",
        URL,
        "addresses of the sentinels",
    ),
    ("ERR unknown command 'HELLO', with args beginning with: '3' ", ACCESS, "RESP3"),
    ("NOPROTO unsupported protocol version", ACCESS, "RESP3"),
    ("ERR Client sent AUTH, but no password is set", ErrorKind::Protocol, "refuses the command"),
    ("ERR wrong number of arguments for 'set' command", ErrorKind::Protocol, "refuses the command"),
    ("STRANGE news", ErrorKind::Protocol, "refuses the command"),
];

#[test]
fn a_server_error_has_a_kind_and_names_the_remedy() {
    for (text, kind, remedy) in ANSWERS {
        let error = explain(answer(text));
        assert_eq!(error.kind(), kind, "{text}: {error}");
        assert!(error.to_string().contains(remedy), "{text}: no {remedy:?} in {error}");
        // Writes before the error stay.
        let inside = ["executing the script", "in script", "called from"];
        let expected = match inside.iter().any(|words| text.contains(words)) {
            true => Certainty::Unknown,
            false => Certainty::NotApplied,
        };
        assert_eq!(error.certainty(), expected, "{text}");
    }
}

#[test]
fn a_failed_probe_names_the_commands_and_the_cause() {
    assert!(refused(&[], ACL).is_none());
    let denied = "ERR The user executing the script can't run this command or subcommand";
    let error = refused(&[("ZADD", denied), ("HSET", denied)], "ACL SETUSER x").unwrap();
    assert_eq!(error.kind(), ACCESS);
    assert!(error.to_string().contains("(no permission to run ZADD, HSET): ACL SETUSER x"));
    // Redis and Valkey.
    for missing in
        ["ERR Unknown Redis command called from script", "ERR Unknown command called from script"]
    {
        let error = refused(&[("ZADD", denied), ("HSET", missing)], ACL).unwrap();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("rename-command"), "{error}");
        assert!(error.to_string().contains("(HSET)"), "{error}");
    }
}

#[test]
fn denied_keys_are_distinguished_from_denied_commands() {
    for text in [
        "NOPERM this user has no permissions to access one of the keys used as arguments",
        "NOPERM No permissions to access a key",
        "NOPERM User u has no permissions to access the 'b' key",
        "ERR The user executing the script can't access at least one of the keys mentioned",
    ] {
        assert!(is_key_denial(text), "{text}");
    }
    for text in [
        "NOPERM this user has no permissions to run the 'evalsha' command",
        "NOPERM this user has no permissions to access one of the channels used as arguments",
    ] {
        assert!(!is_key_denial(text), "{text}");
    }
}

#[test]
fn an_io_error_has_a_kind_and_names_the_remedy() {
    use std::io::ErrorKind as Io;
    for (kind, text, expected, remedy) in [
        (Io::TimedOut, "timed out", ErrorKind::Unavailable, "dlock.response_timeout"),
        (Io::ConnectionRefused, "refused", ErrorKind::Unavailable, "check that it runs"),
        (Io::ConnectionReset, "reset", ErrorKind::Unavailable, "check that it runs"),
        (Io::InvalidData, "invalid peer certificate: UnknownIssuer", ACCESS, "dlock.tls_ca"),
        (Io::InvalidData, "received fatal alert: CertificateRequired", ACCESS, "dlock.tls_cert"),
        (
            Io::InvalidData,
            "received corrupt message of type InvalidContentType",
            ACCESS,
            "TLS port",
        ),
    ] {
        let error = explain(io(kind, text));
        assert_eq!(error.kind(), expected, "{text}: {error}");
        assert!(error.to_string().contains(remedy), "{text}: no {remedy:?} in {error}");
        assert_eq!(error.certainty(), Certainty::Unknown, "{text}");
    }
}

#[test]
fn a_failed_connection_sent_nothing_and_states_its_reason_once() {
    let why = || Error::config(ConfigIssue::Access, "wrong password").during("connect");
    let explained = explain(not_connected(&why()));
    assert_eq!((explained.kind(), explained.certainty()), (ACCESS, Certainty::NotApplied));
    assert_eq!(explained.to_string(), "connect: wrong password");
}

#[test]
fn the_restart_guard_is_reported_and_not_retried_at_once() {
    let guard = || guarded(std::time::Duration::from_secs(3));
    assert_eq!(remedy_of(&guard()), Remedy::None);
    let explained = explain(guard());
    assert_eq!(
        (explained.kind(), explained.certainty()),
        (ErrorKind::Unavailable, Certainty::NotApplied)
    );
    assert!(
        explained.to_string().contains("3s") && explained.to_string().contains("restart_guard"),
        "{explained}"
    );
}

#[test]
fn temporary_errors_are_retried() {
    for (text, expected) in [
        ("NOSCRIPT No matching script.", Remedy::SendText),
        ("READONLY You can't write against a read only replica.", Remedy::Reconnect),
        ("MASTERDOWN Link with MASTER is down", Remedy::Reconnect),
        ("LOADING Redis is loading the dataset in memory", Remedy::Retry),
        ("BUSY Redis is busy running a script.", Remedy::Retry),
        ("UNBLOCKED force unblock from blocking operation", Remedy::Retry),
        ("TRYAGAIN Multiple keys request during rehashing of slot", Remedy::Retry),
        ("CLUSTERDOWN The cluster is down", Remedy::Retry),
        ("MOVED 1 127.0.0.1:1", Remedy::Retry),
        ("OOM command not allowed", Remedy::None),
        ("NOPERM this user has no permissions", Remedy::None),
        ("WRONGTYPE Operation against a key", Remedy::None),
        ("ERR anything", Remedy::None),
    ] {
        assert_eq!(remedy_of(&answer(text)), expected, "{text}");
    }
    assert_eq!(remedy_of(&io(std::io::ErrorKind::TimedOut, "late")), Remedy::Retry);
}

#[test]
fn an_unreadable_answer_is_shown_in_part() {
    let long = redis::Value::BulkString(vec![b'x'; 100_000]);
    let error = unreadable("a script", &redis::Value::Array(vec![long]));
    assert!(error.to_string().len() < 300, "{error}");
}
