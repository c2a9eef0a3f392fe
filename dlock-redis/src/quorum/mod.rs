//! A quorum of independent masters: a lock is held by whoever a majority of them says.
//!
//! The setting is that of Redlock
//! (<https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/>): no replication, and
//! no master that is more than the others. Each holds the lock by the same scripts and keys as one
//! server alone. What differs:
//!
//! - **Majority.** A claim holds the lock while a majority holds it for the claim. The lease counts
//!   from before the first request, so the time that a majority takes is off it. What a failed
//!   attempt got is given back before the answer.
//! - **Tokens.** The client proposes a number; each master takes it, or its own next one if that is
//!   larger. If a majority took exactly the largest answer, that is the token. Otherwise the largest
//!   is written back where the claim holds the lock, and counts once a majority has it. Any two
//!   majorities meet in a master, so tokens grow strictly, without a clock.
//! - **No queue**, since each master would have its own: waiting is asking again at random times.
//!   Fair locks are refused, and permits too, because majorities don't keep a count.
//! - **Restart.** A master that comes back without its data would vote twice. Unless it writes
//!   everything down, its votes count only once it has run for as long as the longest lease.

mod backend;
mod book;
mod member;
mod tally;
mod vote;

pub(crate) use self::backend::Quorum;
