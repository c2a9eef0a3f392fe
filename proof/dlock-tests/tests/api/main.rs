//! The public API of the published crates is in golden files, and a breaking change of any golden
//! file since the last release raises the version.
//!
//! `scripts/docs` runs this program after it has written the documentation as JSON. A check that is
//! not possible is a line that begins with `not checked:`, which `scripts/test` repeats at its end.

use std::{fs, path::Path, process::Command};

use dlock_tests::{Change, Version, golden, root};

/// The version of rustdoc's JSON that this version of `public-api` reads.
const FORMAT: &str = "57";

fn main() {
    let folder =
        std::env::var("DLOCK_DOCS").expect("DLOCK_DOCS is not set: run scripts/docs --api");
    let checks = [
        ("public API", compare_api(Path::new(&folder))),
        ("version for the changes since the last release", compare_release()),
    ];
    for (check, outcome) in checks {
        match outcome {
            Ok(()) => println!("{check}: as expected"),
            Err(reason) => println!("not checked: {check}: {reason}"),
        }
    }
}

/// Compares the API with the golden files. The error is the reason why that is not possible.
fn compare_api(folder: &Path) -> Result<(), String> {
    for package in published() {
        let name = package.replace('-', "_");
        let json = folder.join(format!("{name}.json"));
        let format = format(&json);
        if format != FORMAT {
            return Err(format!(
                "this Rust writes its documentation in format {format}, and public-api reads \
                 {FORMAT}: use another Rust, or another public-api in Cargo.toml"
            ));
        }
        let api = public_api::Builder::from_rustdoc_json(&json)
            .omit_blanket_impls(true)
            .build()
            .unwrap_or_else(|error| panic!("{}: {error}", json.display()));
        golden(&format!("api/{package}.txt"), &listing(&name, &api.to_string()));
    }
    Ok(())
}

/// Returns the packages that users depend on: the facade, and those that are published.
fn published() -> Vec<String> {
    let mut packages = vec!["dlock".to_string()];
    for entry in fs::read_dir(root()).expect("the repository") {
        let package = entry.expect("an entry").file_name().into_string().expect("UTF-8");
        let manifest = fs::read_to_string(root().join(&package).join("Cargo.toml"));
        let published = manifest.is_ok_and(|text| !text.contains("\npublish = false"));
        if package.starts_with("dlock-") && published {
            packages.push(package);
        }
    }
    packages.sort();
    packages
}

/// Returns the version of the format of a JSON file, which stands at its end.
fn format(json: &Path) -> String {
    let text = fs::read_to_string(json)
        .unwrap_or_else(|error| panic!("{}: {error}: run scripts/docs --api", json.display()));
    let (_, version) = text.rsplit_once("\"format_version\":").expect("a version of the format");
    version.chars().take_while(char::is_ascii_digit).collect()
}

/// Auto traits and traits of the compiler that this project does not promise. `Send` and `Sync` stay.
const UNPROMISED: [&str; 6] = [
    "core::marker::Freeze for ",
    "core::marker::StructuralPartialEq for ",
    "core::marker::Unpin for ",
    "core::marker::UnsafeUnpin for ",
    "core::panic::unwind_safe::RefUnwindSafe for ",
    "core::panic::unwind_safe::UnwindSafe for ",
];

/// Methods that the line of their trait implies.
const IMPLIED: [&str; 6] = [
    "::clone(&self",
    "::cmp(&self",
    "::eq(&self",
    "::fmt(&self",
    "::hash<__H",
    "::partial_cmp(&self",
];

/// Returns the lines of a crate's API that its golden file has.
fn listing(own: &str, api: &str) -> String {
    let (mut text, mut of_core) = (String::new(), false);
    for line in api.lines() {
        if line.starts_with("impl") {
            of_core = line.starts_with("impl core::") || line.contains("> core::");
        }
        let implied = of_core && IMPLIED.iter().any(|method| line.contains(method));
        let unpromised = line.starts_with("impl") && UNPROMISED.iter().any(|of| line.contains(of));
        if !implied && !unpromised {
            text += &without_private_modules(own, line);
            text.push('\n');
        }
    }
    text
}

/// Removes the modules from the paths of other crates of this project: rustdoc names a type of
/// another crate after the file that it stands in, which is no API.
fn without_private_modules(own: &str, line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some(start) = rest.find("dlock") {
        let end = rest[start..]
            .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'))
            .map_or(rest.len(), |length| start + length);
        text += &rest[..start];
        text += &shortened(own, &rest[start..end]);
        rest = &rest[end..];
    }
    text + rest
}

/// Returns the path `other::module::Name` as `other::Name`.
fn shortened(own: &str, path: &str) -> String {
    let parts: Vec<&str> = path.split("::").collect();
    if parts[0] == own {
        return path.to_string();
    }
    let named = parts.iter().position(|part| part.starts_with(char::is_uppercase));
    match named {
        Some(first) => [&parts[..1], &parts[first..]].concat().join("::"),
        None => path.to_string(),
    }
}

/// The folder of the golden files.
const GOLDEN: &str = "proof/dlock-tests/golden";

/// Checks that the version is large enough for the changes since the last release. The error is the
/// reason why that is not possible.
fn compare_release() -> Result<(), String> {
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
