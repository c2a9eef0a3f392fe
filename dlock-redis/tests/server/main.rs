//! The Redis backend against real servers that refuse requests, have unsuitable settings, or are shared
//! with other programs.

#![cfg(unix)]

mod support;

mod access;
mod addresses;
mod busy;
mod cleanup;
mod durable;
mod foreign;
mod formats;
mod golden;
mod many_waiters;
mod names;
mod plain;
mod quorum_memory;
mod requirements;
mod restart_guard;
mod rights;
mod scripts;
#[cfg(feature = "tls")]
mod tls;
