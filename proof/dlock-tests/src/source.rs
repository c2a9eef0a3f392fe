//! The sources of the repository as text.

use std::{fs, path::Path};

/// Returns the Rust files below a folder: the path and the text of each.
///
/// # Panics
/// If the folder or a file can't be read.
pub fn rust_files(folder: &Path) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    for entry in entries {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            all.extend(rust_files(&path));
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = fs::read_to_string(&path).expect("UTF-8");
            all.push((path.display().to_string(), text));
        }
    }
    all
}
