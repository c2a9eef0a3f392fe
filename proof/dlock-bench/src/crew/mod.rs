//! Several processes that do the same work at the same time. They get commands through pipes, and
//! report when they held a lock.

pub(crate) mod contestant;
mod holds;
mod java;
mod member;
pub(crate) mod peers;
pub(crate) mod team;

pub(crate) use holds::{Hold, Holds};
pub(crate) use member::{Crew, Talk, answer, span};
