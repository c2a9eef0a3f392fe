//! Redis as it is run: Sentinel, Cluster, replicas and quorums of real servers that fail over, move
//! slots, hang, die and come back, under clients that hold locks and wait for them.

#![cfg(unix)]
#![expect(clippy::disallowed_methods, reason = "tests run clients side by side")]

mod close;
mod cluster;
mod durable;
mod fall;
mod guard;
mod health;
mod help;
mod moves;
mod nodes;
mod push;
mod quorum;
mod resolve;
mod sentinel;
mod votes;
