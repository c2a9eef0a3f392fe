//! Short runs of the properties.

use dlock_testkit::inputs::try_on;

const URL: &[&str] = &[
    "etcd",
    "etcds",
    ":",
    "//",
    "/",
    "?",
    "&",
    "=",
    "@",
    "#",
    "%3A",
    "%2F",
    "%FF",
    "[::1]",
    "host",
    "host:2379",
    ",",
    "user:pass@",
    "etcd://host",
    "etcd://a:b@host",
    "root",
    "dlock.root=",
    "dlock.session_timeout=",
    "15s",
    "dlock.tls_ca=x",
    "..",
    "\n",
    "\u{e000}",
];

const KEY: &[&str] = &[
    "/",
    "%",
    "%25",
    "%2F",
    "%41",
    "%session",
    "%vote",
    "orders",
    "a/",
    "é",
    "r",
    "p",
    "n2-",
    "n",
    "-",
    "694d7d2a5c1f0d06",
    "7b",
    "0",
    "00000000000000000000000000000001",
    "cfa6e75c1ef24d4e8db44c1f0a4d3e11",
];

const LINES: &[&str] = &[
    "cfa6e75c1ef24d4e8db44c1f0a4d3e11 x 30000\n",
    "cfa6e75c1ef24d4e8db44c1f0a4d3e11 s 30000 note\n",
    "cfa6e75c1ef24d4e8db44c1f0a4d3e12 x 1\n",
    "rcfa6e75c1ef24d4e8db44c1f0a4d3e13 s 1\n",
    "rcfa6e75c1ef24d4e8db44c1f0a4d3e14 s 1\n",
    "pcfa6e75c1ef24d4e8db44c1f0a4d3e15 1/3 1\n",
    "pcfa6e75c1ef24d4e8db44c1f0a4d3e16 2/3 1\n",
    "pcfa6e75c1ef24d4e8db44c1f0a4d3e17 3/3 1\n",
    "pcfa6e75c1ef24d4e8db44c1f0a4d3e18 1/3 1\n",
    "694d7d2a5c1f0d06\n",
    "7b\n",
    "n9-x\n",
    "\n",
    " ",
    "r",
    "p",
    "2/3 1",
];

#[test]
fn urls() {
    try_on(URL, super::url);
}

#[test]
fn urls_hide_passwords() {
    try_on(URL, super::url_password);
}

#[test]
fn keys() {
    try_on(KEY, super::key);
}

#[test]
fn records() {
    const CLAIM: &str = " 30000 0f6b2c19a4e35d7810c9b8a7f6e5d4c3";
    let pieces =
        &["x", "s", "2/5", " ", "30000", CLAIM, "\u{1}2", "\u{1}9", "web-3", "+", "é", "\n"];
    try_on(pieces, super::record);
}

#[test]
fn queues() {
    try_on(LINES, super::queue);
}
