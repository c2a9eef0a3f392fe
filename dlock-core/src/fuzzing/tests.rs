//! Runs the laws for a short time.

use inputs::try_on;

// The file of the kit, since the kit itself depends on this crate.
#[expect(unreachable_pub, reason = "it is public in the kit")]
#[path = "../../../dlock-testkit/src/inputs.rs"]
mod inputs;

const URL: &[&str] = &[
    "redis",
    "sqlite",
    "zk",
    "memory",
    "+",
    ":",
    "//",
    "/",
    "?",
    "&",
    "=",
    "@",
    "#",
    "%",
    "%41",
    "%FF",
    "%3F",
    "[::1]",
    "host",
    "host:6379",
    "user",
    "a,b",
    "dlock.",
    "dlock.lease=",
    "lease",
    "plain=true",
    "30s",
    "1h 30m",
    "99999999999999999999y",
    "true",
    "mode=rw",
    "\n",
    "🔒",
];

const ROW: &[&str] = &[
    "v1 ",
    "v2 ",
    "v9 ",
    "f2 ",
    "f9 ",
    "0 ",
    "1 ",
    "5 ",
    "1073741824 ",
    "9223372036854775807 ",
    "= ",
    ";",
    "\n",
    "A ",
    "K ",
    "R ",
    "Q ",
    "T ",
    " ",
    "00000000000000000000000000000001 ",
    "00000000000000000000000000000002 ",
    "v1 7 1073741824;",
    "00000000000000000000000000000001 = 1 7 30 90 0;",
    "A 00000000000000000000000000000002 = 1073741824 30 1 0 Q 17;",
    "A 00000000000000000000000000000003 1 1073741824 30 256 9 Q 17;",
    "A 00000000000000000000000000000004 2 3 30 1 0 T 18;",
    "K 00000000000000000000000000000002 1 30 25;",
    "R 00000000000000000000000000000001 1 19;",
    "n",
    "nweb-3%20pid%201",
    "%3B",
    "00000000000000000000000000000005 = 1 0 30 90 0 na;",
    "A 00000000000000000000000000000006 = 1073741824 30 1 0 Q na%20b 20;",
    "v2 7 1073741824;",
    "00000000000000000000000000000007 = 1 0 30 90 0 na f2;",
    "A 00000000000000000000000000000008 1 1073741824 30 1 0 Q f2 21;",
];

#[test]
fn names() {
    try_on(&["a", "é", "/", "\0", "\u{85}", "🔒", " ", LONG, "..", "{a}"], super::name);
}

#[test]
fn notes() {
    let pieces = &["a", "é", "%20", "%", ";", "\n", "%0A", "%41", "🔒", " ", LONG, "%C3%A9", "-._"];
    try_on(pieces, super::note);
}

const LONG: &str = "a name of seventy letters is not too long by itself, but eight of them are";

#[test]
fn urls() {
    try_on(URL, super::url);
}

#[test]
fn urls_hide_passwords() {
    try_on(URL, super::url_password);
}

#[test]
fn hosts() {
    let pieces = &["h", ".", ":", "[", "]", "::1", "0", "6379", "65536", "+", "[::1]", "%", "@"];
    try_on(pieces, super::host);
}

#[test]
fn numbers() {
    try_on(&["\0", "\0\0\0\0", "\0\0\0\x01", "\x7f", "\u{1}\u{2}"], super::numbers);
}

#[test]
fn claims() {
    try_on(&["0", "a", "F", "00000000000000000000000000000001", "0000", "+"], super::claim);
}

#[test]
fn rows() {
    try_on(ROW, super::machine_text);
}

#[test]
fn logs() {
    try_on(&["\0", "\x01", "\x02", "\x03", "\x07\x07", "\x7f\x7f"], super::machine_log);
}
