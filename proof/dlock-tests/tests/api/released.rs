//! The golden files and the version, compared with those of the last release: the last tag of the
//! form `v1.2.3` before this commit.

use std::{fs, path::Path, process::Command};

use dlock_tests::{Change, Version, root};

/// The folder of the golden files.
const GOLDEN: &str = "proof/dlock-tests/golden";

/// Checks that the version is large enough for the changes since the last release. The error is the
/// reason why that is not possible.
pub(crate) fn compare() -> Result<(), String> {
    let changelog = fs::read_to_string(root().join("CHANGELOG.md")).expect("CHANGELOG.md");
    let titles = changelog.lines().filter_map(|line| line.strip_prefix("## ["));
    if !titles.into_iter().any(|title| title.starts_with(|first: char| first.is_ascii_digit())) {
        println!("CHANGELOG.md has no release yet, so there is nothing to compare with");
        return Ok(());
    }
    let tag = git(&["describe", "--tags", "--abbrev=0", "--match", "v[0-9]*"])
        .map_err(|error| format!("no tag of the last release ({error}): git fetch --tags"))?;
    let tag = tag.trim();
    let release = Version::parse(tag).unwrap_or_else(|| panic!("the tag {tag} is no version"));
    let version = Version::parse(env!("CARGO_PKG_VERSION")).expect("a version");

    let changes = changes(tag);
    let change = changes.iter().map(|(_, change)| *change).max().unwrap_or(Change::None);
    let needed = release.after(change);
    let files: Vec<&str> =
        changes.iter().filter(|(_, of)| *of == change).map(|(file, _)| file.as_str()).collect();
    let what = if change == Change::Breaking { "a breaking change" } else { "an addition" };
    assert!(
        version >= needed,
        "the version {version} is too small for {what} since {tag}, in {}: raise it to {needed} in \
         Cargo.toml, and list the change in CHANGELOG.md",
        files.join(", ")
    );
    Ok(())
}

/// Returns each golden file of the release or of today, with its change since then.
fn changes(tag: &str) -> Vec<(String, Change)> {
    let run = |arguments: &[&str]| {
        git(arguments).unwrap_or_else(|error| panic!("git {}: {error}", arguments.join(" ")))
    };
    let released = run(&["ls-tree", "-r", "--name-only", tag, "--", GOLDEN]);
    let released: Vec<&str> = released.lines().filter(|file| file.ends_with(".txt")).collect();
    let today = files(Path::new(GOLDEN));
    let mut all: Vec<&str> =
        released.iter().copied().chain(today.iter().map(String::as_str)).collect();
    all.sort_unstable();
    all.dedup();
    all.into_iter()
        .map(|file| {
            let old = match released.contains(&file) {
                true => run(&["show", &format!("{tag}:{file}")]),
                false => String::new(),
            };
            let new = fs::read_to_string(root().join(file)).unwrap_or_default();
            (file.to_string(), Change::between(&old, &new))
        })
        .collect()
}

/// Returns the golden files of today below a folder of the repository.
fn files(folder: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for entry in fs::read_dir(root().join(folder)).expect("the golden files") {
        let path = folder.join(entry.expect("an entry").file_name());
        if root().join(&path).is_dir() {
            all.extend(files(&path));
        } else if path.extension().is_some_and(|end| end == "txt") {
            all.push(path.display().to_string());
        }
    }
    all
}

/// Runs git in the repository. The error is its message.
fn git(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("git").args(arguments).current_dir(root()).output();
    let output = output.map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_string()),
    }
}
