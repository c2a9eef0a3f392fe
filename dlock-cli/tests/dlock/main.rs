//! The command `dlock`, as its users start it: on SQLite, which processes can share without a
//! server, and on each server.

#![expect(clippy::unwrap_used, reason = "tests, and their helpers")]

mod admin;
mod connection;
mod doctor;
mod help;
mod printed;
mod rights;
mod run;
mod stores;
mod support;
mod terminal;
