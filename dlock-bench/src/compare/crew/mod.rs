//! Several processes that do the same at one time, told by lines through pipes what to do, and who
//! of them held a lock when.

mod holds;
mod member;

pub(crate) use holds::{Hold, Holds};
pub(crate) use member::{Crew, Talk, answer, span};
