//! The public API of the published crates is in golden files, and a breaking change of any golden
//! file since the last release raises the version.
//!
//! `scripts/docs` runs this program after it has written the documentation as JSON. A check that is
//! not possible is a line that begins with `not checked:`, which `scripts/test` repeats at its end.

mod listing;
mod released;

use std::{fs, path::Path};

use dlock_tests::{golden, root};

/// The version of rustdoc's JSON that this version of `public-api` reads.
const FORMAT: &str = "57";

fn main() {
    let folder =
        std::env::var("DLOCK_DOCS").expect("DLOCK_DOCS is not set: run scripts/docs --api");
    let checks = [
        ("public API", compare_api(Path::new(&folder))),
        ("version for the changes since the last release", released::compare()),
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
        golden(&format!("api/{package}.txt"), &listing::listing(&name, &api.to_string()));
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
