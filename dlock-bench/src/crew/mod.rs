//! Several processes that do the same at one time: this executable, started again and told by lines
//! through pipes what to do.
//!
//! What all stores have in common is here: clients that want one fair lock, and who held it when.

pub(crate) mod child;
mod holds;
mod parent;

pub(crate) use holds::{Hold, Holds};
pub(crate) use parent::{Crew, Talk, answer, span};
