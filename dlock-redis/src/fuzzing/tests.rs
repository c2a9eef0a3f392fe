//! Short runs of the properties.

use dlock_testkit::inputs::try_on;

const URL: &[&str] = &[
    "redis",
    "redis+sentinel",
    "redis+cluster",
    "redis+quorum",
    "redis+unix",
    ":",
    "//",
    "/",
    "?",
    "&",
    "=",
    "@",
    "#",
    "%2F",
    "%FF",
    "%3F",
    "[::1]",
    "a",
    "b:7",
    "c:07",
    ",",
    "redis://host",
    "redis+quorum://a,b,c",
    "redis+sentinel://a/m",
    "user:pass@",
    "dlock.plain=true",
    "dlock.durability=",
    "majority",
    "dlock.restart_guard=",
    "30s",
    "dlock.sentinel_user=",
    "dlock.sentinel_password=",
    "dlock.",
    "\n",
];

const ANSWER: &[&str] = &[
    "*0\r\n",
    "*1\r\n",
    "*2\r\n",
    "*4\r\n",
    "*5\r\n",
    "*10\r\n",
    ":0\r\n",
    ":1\r\n",
    ":2\r\n",
    ":3\r\n",
    ":4\r\n",
    ":-1\r\n",
    ":9223372036854775807\r\n",
    ":1073741824\r\n",
    ":16383\r\n",
    "$32\r\n00000000000000000000000000000001\r\n",
    "$-1\r\n",
    "+OK\r\n",
    "$1\r\na\r\n",
    "%1\r\n",
    "$12\r\nconfig-epoch\r\n",
    "$0\r\n\r\n",
    "*2\r\n:7\r\n*5\r\n",
    "*2\r\n$10\r\n1700000000\r\n$2\r\n17\r\n",
    "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$1\r\nh\r\n:7\r\n",
    "_\r\n",
    "#t\r\n",
    ",1.5\r\n",
    "-ERR no\r\n",
    "*2\r\n$32\r\n00000000000000000000000000000001\r\n",
    "*3\r\n:9\r\n*6\r\n$32\r\n00000000000000000000000000000001\r\n:1\r\n:3\r\n:7\r\n:9\r\n:-1\r\n",
    "$2\r\né\r\n",
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
    try_on(&["{", "}", ":", "f", "dlock:{1}", "a", "é", "/", "q:", "0"], super::keys);
}

#[test]
fn replies() {
    try_on(ANSWER, super::reply);
}

#[test]
fn messages() {
    let pieces = &["00000000000000000000000000000001", " ", "7", "+1", "9223372036854775808", "a"];
    try_on(pieces, super::message);
}

#[test]
fn info() {
    let pieces = &[
        "redis_version:",
        "7.4.1",
        "6.0",
        "\r\n",
        "run_id:a",
        "a 5000",
        "maxmemory:1",
        "aof_enabled:1",
        "loading:1",
        "role:slave",
        "cluster_enabled:1",
        "redis_mode:sentinel",
        "connected_slaves:",
        ":",
        ".",
        "maxmemory_policy:allkeys-lru",
    ];
    try_on(pieces, super::info);
}

#[test]
fn topologies() {
    try_on(ANSWER, super::topology);
    try_on(&["h", ":", "?", "7", "::1", "", "[", "]"], super::topology);
}

#[test]
fn errors() {
    let pieces = &[
        "MOVED ",
        "ASK ",
        "17 ",
        "h:7",
        ":7",
        "?:7",
        "NOSCRIPT ",
        "NOPERM ",
        "WRONGTYPE ",
        "is not of dlock",
        "ERR ",
        "unknown command",
        "SENTINEL",
        "BUSY ",
        "LOADING ",
        "HELLO",
        " ",
        "DB index is out of range",
        "max number of clients",
        "UNBLOCKED",
        "CLUSTERDOWN",
        "user_script",
    ];
    try_on(pieces, super::error);
}
