//! Backends over backends. Each forwards every method, held to it by
//! `clippy::missing_trait_methods`, so that a new verb can't be forgotten.

/// What a backend answers as the one below it does.
macro_rules! forward {
    ($($method:ident($($given:ident: $type:ty)?) -> $answer:ty,)+) => {
        $(fn $method(&self $(, $given: $type)?) -> $answer {
            self.inner.$method($($given)?)
        })+
    };
}

mod offset;
mod prefix;
mod trace;

pub use offset::TokenOffset;
pub use prefix::Prefixed;
pub use trace::Traced;
