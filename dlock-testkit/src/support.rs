//! Parts of the kit that the other test packages of dlock share. Not an API for backend authors.

pub use crate::{
    alone::is_required,
    case::{connected, now},
    ensure, polls,
    run::completion,
    stalls::{repeated_once, tell},
    suite::runtime,
};
