//! The ZooKeeper backend against real servers that refuse, that are not as they should be, and
//! that other programs use, too.

#![cfg(unix)]

mod support;

mod acls;
mod addresses;
mod beats;
mod curator;
mod curator_counts;
mod evicted;
mod examine;
mod foreign;
mod formats;
mod golden;
mod left;
mod login;
mod names;
mod numbers;
mod numbers_storm;
mod old;
mod outside;
mod places;
mod quorum;
mod refused;
mod rights;
mod shared;
#[cfg(feature = "tls")]
mod tls;
mod turns;
mod unreachable;
mod warned;
