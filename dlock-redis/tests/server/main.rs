//! The Redis backend against real servers that refuse requests, have unsuitable settings, or are shared
//! with other programs.

#![cfg(unix)]

mod support;

mod access;
mod addresses;
mod busy;
mod cleanup;
mod client;
mod durable;
mod error_messages;
mod examine;
mod exclusion_guarantee;
mod foreign;
mod formats;
mod golden;
mod list;
mod many_waiters;
mod names;
mod out_of_memory;
mod plain;
mod prefix_rights;
mod queue_position;
mod quorum_memory;
mod requirements;
mod restart_guard;
mod restart_guard_marks;
mod rights;
mod scripts;
#[cfg(feature = "tls")]
mod tls;
mod unreadable_records;
