//! The cost of each operation on the wire, counted between a client and a private server, is the one
//! in `docs/src/costs.md`.
//!
//! Counts must be equal, so an operation that became cheaper fails too, until the page says so. Bytes
//! must not be more than the page says, because tokens and times vary in length.

mod client;
mod cost;
mod document;
mod log;
mod operations;
mod stores;
