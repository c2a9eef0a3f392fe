//! Short runs of the properties.

use dlock_testkit::inputs::try_on;

#[cfg(any(feature = "mysql", feature = "postgres"))]
const URL: &[&str] = &[
    "//",
    "/",
    "?",
    "&",
    "=",
    "@",
    "#",
    ":",
    "%40",
    "%2F",
    "%FF",
    "%00",
    "[::1]",
    "localhost",
    "u",
    "u:p@",
    "//u:p@localhost/db",
    "db",
    ":5432",
    ":port",
    "sslmode=",
    "disable",
    "prefer",
    "ssl-mode=",
    "DISABLED",
    "socket=",
    "host=",
    "port=",
    "password=",
    "options[a]=",
    "dlock.",
    "dlock.connections=",
    "dlock.plain=row",
    "dlock.retention=",
    "7",
    "30s",
    "\n",
    "charset=utf8",
    "sslcert=x",
    "hostaddr=",
];

#[cfg(feature = "mysql")]
#[test]
fn mysql_urls() {
    try_on(URL, super::mysql_url);
}

#[cfg(feature = "postgres")]
#[test]
fn postgres_urls() {
    try_on(URL, super::postgres_url);
}

#[cfg(feature = "sqlite")]
#[test]
fn sqlite_urls() {
    let pieces = &["//", "/", "a", ".db", ":memory:", "%00", "%3F", "%FF", "?", "dlock.", "@", "é"];
    try_on(pieces, super::sqlite_url);
}

#[cfg(feature = "sqlite")]
#[test]
fn sqlite_arguments() {
    try_on(&["\"", "\\", "|", "\n", "\0", "u0000", "[", ",", "🔒", "a"], super::sqlite_json);
}

#[cfg(feature = "mysql")]
#[test]
fn mysql_arguments() {
    try_on(&["\"", "\\", "é", "\n", "🔒", "a"], super::mysql_names);
}

#[cfg(feature = "mysql")]
#[test]
fn ends_of_logs() {
    try_on(
        &["R a 1", "R a 11", "K b 1 9", " ", "5", "17", ";", "R a 1 5;", "\n", " nb%20 "],
        super::log_end,
    );
}

#[cfg(feature = "postgres")]
#[test]
fn postgres_arguments() {
    try_on(&["'", "\\", "$1", "--", "|", "\n", "\0", "E'", "a", "🔒"], super::postgres_literal);
}

#[cfg(feature = "postgres")]
#[test]
fn notifications() {
    let pieces = &["00000000000000000000000000000007", " 9", " 2", " 5 8 a", "+", " ", "\n", "é"];
    try_on(pieces, super::notification);
}

#[cfg(all(feature = "mysql", feature = "postgres"))]
#[test]
fn errors() {
    let pieces = &["08P01", "0A000", "57014", " ", "1045", "1213", "startup parameter", "65536"];
    try_on(pieces, super::error);
}

/// Their password has a bare `@` and `?`: the part between the two looks like a host.
#[cfg(all(feature = "mysql", feature = "postgres"))]
#[test]
fn a_part_of_a_password_that_looks_like_a_host_is_hidden() {
    for data in ["a@\nport=?b\n", "a@\n?b\n", "a@\n:1?sslmode=verify-full&b\n"] {
        super::postgres_url(data.as_bytes());
        super::mysql_url(data.as_bytes());
    }
}
