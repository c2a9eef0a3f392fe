//! Backends over backends. Each forwards every method, held to it by
//! `clippy::missing_trait_methods`, so that a new verb can't be forgotten.

mod offset;
mod prefix;
mod trace;

pub use offset::TokenOffset;
pub use prefix::Prefixed;
pub use trace::Traced;
