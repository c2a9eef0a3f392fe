//! Code that the tests of several packages share: it reads the texts of the repository. The Rust
//! code of the guide is tested with this package.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

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
    Text, Typed, blocks, chapters, code, console, fenced, links, prose, rust_is_tested, shape,
    slugs, spans, texts,
};

/// Returns the root of the repository.
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Returns the folders of all crates by their names, without the facade: that is the root itself.
///
/// # Panics
/// If a folder can't be listed.
pub fn crates() -> BTreeMap<String, PathBuf> {
    let listed = [root().to_owned(), root().join("proof")].map(|folder| {
        let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        entries.flatten().filter(|entry| entry.path().join("Cargo.toml").exists())
    });
    let named = listed
        .into_iter()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())));
    named.filter(|(name, _)| name.starts_with("dlock-")).collect()
}
