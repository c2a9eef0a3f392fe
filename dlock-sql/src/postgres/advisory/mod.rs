//! Locks of a session: PostgreSQL's advisory locks. The database frees them when it notices a dead
//! connection, not at the end of a lease.
//!
//! One connection has all locks of this backend, and they are lost with it. The server frees them
//! when it notices: at once after a crash of the holder's process, and after a network partition
//! when its own keep-alive gives up. The holder notices at its next renewal, which is a query on
//! that connection, or at the end of its own lease. In between another client may get the lock. So
//! the guarantee of exclusion is the weakest. The fencing tokens, from a row of the lock's name,
//! distinguish the two holders.
//!
//! A statement on a lost connection may arrive late. It takes effect in a session that no client
//! uses any more. That session ends with its connection, and its locks with it: at once if the
//! server receives the client's close, which comes right behind the statement, and otherwise after
//! 25 s, when the keep-alive that dlock sets gives up. A take has a deadline by the server's clock
//! as well, so that none starts after its sender has stopped waiting.
//!
//! See <https://www.postgresql.org/docs/current/explicit-locking.html#ADVISORY-LOCKS>. A key has 64
//! bits: the FNV-1a hash of `dlock:` and the name. Two names with the same key, which can't be
//! detected, exclude each other. There is no queue: waiters poll.

mod session;

pub(super) use session::Session;

use dlock_core::LockName;

/// The table.
pub(super) const SCHEMA: &str = include_str!("schema.sql");

pub(super) const ACQUIRE: &str = include_str!("acquire.sql");
pub(super) const INSPECT: &str = include_str!("inspect.sql");
pub(super) const FREE: &str = "SELECT pg_catalog.pg_advisory_unlock($1::bigint)";
/// Reads the clock.
pub(super) const PING: &str = "SELECT (extract(epoch FROM pg_catalog.statement_timestamp()) \
     OPERATOR(pg_catalog.*) 1000000)::bigint";
pub(super) const SWEEP: &str = include_str!("sweep.sql");
/// Behind a transaction pooler, two connections have the same process.
pub(super) const PROCESS: &str = "SELECT pg_catalog.pg_backend_pid()::bigint";

/// Returns the key of a name: 64-bit FNV-1a (<http://www.isthe.com/chongo/tech/comp/fnv/>).
fn key(name: &LockName) -> i64 {
    let bytes = b"dlock:".iter().chain(name.as_str().as_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    i64::from_ne_bytes(hash.to_ne_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other programs rely on it.
    #[test]
    fn keys_never_change() {
        let key = |name: &str| key(&LockName::new(name).unwrap());
        assert_eq!(key("a"), KEY_OF_A);
        assert_ne!(key("a"), key("b"));
    }

    const KEY_OF_A: i64 = -3_883_536_647_512_444_663;
}
