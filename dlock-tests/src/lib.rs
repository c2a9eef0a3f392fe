//! What the tests of several packages share: the texts of the repository as they are read here. The
//! Rust code of the guide is tested with it.

use std::path::Path;

mod golden;
#[cfg(doctest)]
mod guide;
mod text;

pub use golden::golden;
pub use text::{
    Text, Typed, blocks, chapters, console, links, prose, rust_is_tested, shape, slugs, spans,
    texts,
};

/// The root of the repository.
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
