//! The ZooKeeper backend against real servers that refuse, that are not as they should be, and
//! that other programs use, too.

#![cfg(unix)]

mod support;

mod acls;
mod addresses;
mod cleanup;
mod curator;
mod curator_counts;
mod examine;
mod foreign;
mod formats;
mod golden;
mod heartbeat;
mod late;
mod login;
mod many_waiters;
mod names;
mod numbers;
mod numbers_storm;
mod old_server;
mod quorum;
mod refused_deletions;
mod revoked;
mod rights;
mod root;
mod shared;
mod standing;
mod timeout_check;
#[cfg(feature = "tls")]
mod tls;
mod unreachable;
