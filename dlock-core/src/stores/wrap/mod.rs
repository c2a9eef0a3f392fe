//! Backends that wrap others. Each forwards every method; `clippy::missing_trait_methods` enforces
//! it, so that a new verb can't be forgotten.

/// Forwards methods to the inner backend: `properties` stands for the methods that no wrapper
/// changes, followed by the others that this wrapper does not change.
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
