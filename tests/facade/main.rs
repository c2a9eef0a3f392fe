//! The tests of the facade that need no server, with any features. Those that need servers are in
//! `dlock-tests`.

#[cfg(feature = "blocking")]
mod blocking;
mod connect;
#[cfg(feature = "sqlite")]
mod inventory;
mod kinds;
mod redis;
mod runtime;
mod servers;
mod sqlite;
mod token_offset;
