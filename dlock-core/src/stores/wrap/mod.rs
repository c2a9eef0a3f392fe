//! Backends over backends. Each forwards every method, held to it by
//! `clippy::missing_trait_methods`, so that a new verb can't be forgotten.

/// What a backend answers as the one below it does: with `properties` what no wrapper changes, and
/// then what this one does not change either.
macro_rules! forward {
    (properties $(, $($more:tt)+)?) => {
        forward! {
            guarantees() -> crate::Guarantees,
            clock() -> crate::Clock,
            longest_lease() -> std::time::Duration,
            check_lease(lease: std::time::Duration) -> Result<(), crate::Error>,
            response_timeout() -> std::time::Duration,
            events() -> Option<crate::StoreEvents>,
            $($($more)+)?
        }
    };
    ($($method:ident($($given:ident: $type:ty)?) -> $answer:ty,)+) => {
        $(fn $method(&self $(, $given: $type)?) -> $answer {
            self.inner.$method($($given)?)
        })+
    };
}

mod noted;
mod offset;
mod prefix;
mod trace;

pub use noted::Noted;
pub use offset::TokenOffset;
pub use prefix::Prefixed;
pub use trace::Traced;
