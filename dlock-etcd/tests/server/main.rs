//! The etcd backend against real servers that refuse, that are not as they should be, and that other
//! programs use, too.

#![cfg(unix)]

mod support;

mod addresses;
mod batch;
mod dials;
mod examine;
mod foreign;
mod full;
mod go;
mod golden;
mod lagging;
mod late;
mod login;
mod refused;
mod removed;
mod revoked;
mod rights;
mod streams;
#[cfg(feature = "tls")]
mod tls;
