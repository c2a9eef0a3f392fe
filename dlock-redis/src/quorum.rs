//! A quorum of independent masters: a claim holds a lock if a majority of them has granted it.
//!
//! The setting is that of Redlock
//! (<https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/>): no replication,
//! and no master with a special role. Each master runs the same scripts on the same keys as a
//! single server. The differences:
//!
//! - **Majority.** A claim holds the lock while a majority has granted it. The lease counts from
//!   before the first request, so the time that a majority takes is part of it. The grants of a
//!   failed attempt are released before the answer.
//! - **Tokens.** The client proposes a number. Each master takes it, or its own next number if that
//!   is larger. If a majority took exactly the largest answer, that number is the token. Otherwise
//!   the client writes the largest number back to the masters on which the claim holds the lock,
//!   and it counts once a majority has it. Any two majorities have a master in common, so tokens
//!   grow strictly, without a clock.
//! - **No queue**, since each master would have its own: a waiter polls at random times. Fair locks
//!   are refused. Permits are refused, too, because a majority can't keep a count.
//! - **Restart.** A master that restarts without its data would vote twice. Unless a master writes
//!   everything to disk, its votes count only after it has run for as long as the longest lease.
//!
//! `proof/dlock-models/src/quorum.rs` checks these rules.

mod backend;
mod claim_ids;
mod member;
mod tally;
mod vote;

pub(crate) use self::backend::Quorum;
