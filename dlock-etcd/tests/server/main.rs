//! The etcd backend against real servers that refuse requests, have unsuitable settings, or are
//! shared with other programs.

#![cfg(unix)]

mod support;

mod addresses;
mod batch;
mod examine;
mod foreign;
mod full;
mod go;
mod golden;
mod late;
mod login;
mod refused;
mod revoked;
mod rights;
#[cfg(feature = "tls")]
mod tls;
