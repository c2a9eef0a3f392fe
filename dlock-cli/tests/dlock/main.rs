//! The command `dlock`, as its users start it: on SQLite, which processes can share without a
//! server, and on each server.

#![expect(clippy::unwrap_used, reason = "tests, and their helpers")]

mod doctor;
mod look;
mod lost;
mod nested;
mod printed;
mod reach;
mod rights;
mod run;
mod signals;
mod stores;
mod support;
mod surface;
mod terminal;
mod words;
