//! The facade, with whatever features it is built: what needs no server. `dlock-tests` has what
//! does.

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
