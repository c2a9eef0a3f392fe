//! A PostgreSQL server in memory, and the engine of `dlock-sql` on it.
//!
//! It executes the statements of the engine by their names, so the text of the SQL is not simulated.
//! The tests compare the server with a real one, which executes the text.

mod server;
#[cfg(dlock_sim)]
mod store;
#[cfg(test)]
mod tests;
mod wire;

#[cfg(dlock_sim)]
pub(crate) use self::store::SqlStore;
