//! Short runs of the properties.

use dlock_testkit::inputs::try_on;

const URL: &[&str] = &[
    "zk",
    "zks",
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
    "host:2181",
    ",",
    "user:pass@",
    "zk://host",
    "zk://a:b@host",
    "chroot",
    "dlock.root=",
    "dlock.acl=open",
    "dlock.acl=creator",
    "dlock.session_timeout=",
    "15s",
    "dlock.tls_ca=x",
    "..",
    "zookeeper",
    "\n",
    "\u{e000}",
];

const NODE: &[&str] = &[
    "_c_",
    "cfa6e75c-1ef2-4d4e-8db4-4c1f0a4d3e11",
    "00000000-0000-0000-0000-000000000001",
    "-",
    "lock-",
    "-lock-",
    "-read",
    "-permits-1-of-3",
    "-permits-2-of-3",
    "-since-",
    "permits-",
    "-of-",
    "0000000001",
    "0000000002",
    "-2147483648",
    "2147483647",
    "9223372036854775807",
    "\n",
    "_c_cfa6e75c-1ef2-4d4e-8db4-4c1f0a4d3e11-lock-0000000003",
    "_c_cfa6e75c-1ef2-4d4e-8db4-4c1f0a4d3e12-read-lock-0000000004\n",
    "_c_cfa6e75c-1ef2-4d4e-8db4-4c1f0a4d3e13-lock-0000000005\n",
    "_c_cfa6e75c-1ef2-4d4e-8db4-4c1f0a4d3e14-read-lock-0000000002\n",
    "_c_cfa6e75c-1ef2-4d4e-8db4-4c1f0a4d3e15-permits-1-of-3-lock-0000000001\n",
    "_c_cfa6e75c-1ef2-4d4e-8db4-4c1f0a4d3e16-permits-2-of-3-since-7-lock-0000000002\n",
    "_c_cfa6e75c-1ef2-4d4e-8db4-4c1f0a4d3e17-permits-3-of-3-lock-0000000003\n",
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
fn acls() {
    let pieces = &["open", "creator", "world:anyone:r", "digest:u:h", ":", ",", "rwcda", "r", "x"];
    try_on(pieces, super::acl);
}

#[test]
fn segments() {
    try_on(&[".", "..", "zookeeper", "/", "%", "2E", "%session-", "é", "a", "+"], super::segments);
}

#[test]
fn nodes() {
    try_on(NODE, super::node);
}

#[test]
fn contents() {
    let pieces = &[
        "lease=",
        "30000",
        "ms",
        " shared",
        " granted",
        " ",
        "lease=1ms",
        " note=",
        "\u{1}2",
        "+",
        "é",
    ];
    try_on(pieces, super::node_data);
}

#[test]
fn queues() {
    try_on(NODE, super::queue);
}
