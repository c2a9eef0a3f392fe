//! Several processes that do the same work at the same time. They get commands through pipes, and
//! report when they held a lock.

mod holds;
mod member;

pub(crate) use holds::{Hold, Holds};
pub(crate) use member::{Crew, Talk, answer, span};
