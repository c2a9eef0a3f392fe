//! The ZooKeeper backend against real servers that refuse requests, have unsuitable settings, or
//! are shared with other programs.

#![cfg(unix)]

mod support;

mod addresses;
mod curator;
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
mod preflight;
mod quorum;
mod revoked;
mod rights;
mod root;
mod shared;
#[cfg(feature = "tls")]
mod tls;
mod unreachable;
