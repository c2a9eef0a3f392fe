//! Parts of the kit that the other test packages of dlock share. Not an API for backend authors.

pub use crate::{
    context::now,
    ensure, polls,
    require::is_required,
    run::completion,
    stalls::{repeated_once, tell},
    suite::runtime,
};
