//! Code that the tests of several packages share: it reads the texts of the repository. The Rust
//! code of the guide is tested with this package.

use std::path::Path;

mod golden;
#[cfg(doctest)]
mod guide;
mod release;
mod source;
mod text;

pub use golden::{golden, kept};
pub use release::{Change, Version};
pub use source::rust_files;
pub use text::{
    Text, Typed, blocks, chapters, console, fenced, links, prose, rust_is_tested, shape, slugs,
    spans, texts,
};

/// Returns the root of the repository.
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
