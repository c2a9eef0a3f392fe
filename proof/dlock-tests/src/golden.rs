//! Golden files: names that users rely on, as text in `proof/dlock-tests/golden/`. A change of such a
//! file is a change of the stable surface, so a test writes one only if `DLOCK_UPDATE_GOLDEN` is
//! set.

use std::{fmt::Write as _, fs};

use crate::root;

/// If this is `1`, the tests write golden files instead of comparing them.
const UPDATE: &str = "DLOCK_UPDATE_GOLDEN";

/// Compares a text with the golden file of this name.
///
/// # Panics
/// If they differ. The message contains the lines that differ, and how to update the file.
pub fn golden(name: &str, found: &str) {
    kept(
        &format!("proof/dlock-tests/golden/{name}"),
        found,
        "These names are API: add a line to CHANGELOG.md.",
    );
}

/// Compares a text with the file at this path below the root of the repository.
///
/// # Panics
/// If they differ. The message contains the lines that differ, how to update the file, and `why`.
pub fn kept(name: &str, found: &str, why: &str) {
    let path = root().join(name);
    if std::env::var(UPDATE).is_ok_and(|value| value == "1") {
        fs::write(&path, found).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        return;
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    let difference = difference(&written, found);
    assert!(
        difference.is_empty(),
        "{name} differs (- file, + found):\n{difference}\n\
         If the change is intended, run this test again with {UPDATE}=1, and commit the file. {why}"
    );
}

/// Returns the lines that only one of two texts contains, in order; nothing if the texts are equal.
fn difference(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.split('\n').collect(), new.split('\n').collect());
    // For each pair of lines, the length of the longest common part of the texts that begin there.
    let mut common = vec![vec![0_usize; new.len() + 1]; old.len() + 1];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i][j] = match old[i] == new[j] {
                true => common[i + 1][j + 1] + 1,
                false => common[i + 1][j].max(common[i][j + 1]),
            };
        }
    }
    let (mut i, mut j, mut text) = (0, 0, String::new());
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            (i, j) = (i + 1, j + 1);
        } else if j == new.len() || (i < old.len() && common[i + 1][j] >= common[i][j + 1]) {
            let _ = writeln!(text, "-{}", old[i]);
            i += 1;
        } else {
            let _ = writeln!(text, "+{}", new[j]);
            j += 1;
        }
    }
    text
}

#[test]
fn only_lines_that_differ_are_shown() {
    assert_eq!(difference("a\nb\nc\n", "a\nb\nc\n"), "");
    assert_eq!(difference("a\nb\nc", "a\nx\nc\nd"), "-b\n+x\n+d\n");
    assert_eq!(difference("a\nb", "b\na"), "-a\n+a\n");
    assert_eq!(difference("", "a\n"), "+a\n");
    assert_eq!(difference("a\n", "a"), "-\n");
}

#[test]
#[should_panic(expected = "DLOCK_UPDATE_GOLDEN=1")]
fn a_difference_names_the_way_to_update() {
    assert!(std::env::var(UPDATE).is_err(), "DLOCK_UPDATE_GOLDEN=1 is set, so nothing is compared");
    golden("README.md", "another text");
}
