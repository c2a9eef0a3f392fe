//! What each operation costs on the wire: `docs/src/costs.md` says it, and here it is counted, between
//! a client and a private server. What costs more than is written there fails, and so does what
//! has become cheaper and is not written there.
//!
//! The counts have to be the same. Bytes must not be more; tokens and times have not always the
//! same length.

mod client;
mod cost;
mod document;
mod log;
mod operations;
mod stores;
