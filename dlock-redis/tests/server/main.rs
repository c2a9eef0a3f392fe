//! The Redis backend against real servers that refuse, that are not as they should be, and that
//! other programs use, too.

#![cfg(unix)]

mod support;

mod access;
mod busy;
mod client;
mod durable;
mod examine;
mod fit;
mod foreign;
mod formats;
mod golden;
mod left;
mod list;
mod memory;
mod names;
mod outside;
mod plain;
mod plain_refused;
mod restart;
mod rights;
mod scripts;
#[cfg(feature = "tls")]
mod tls;
