//! Names in the code: the name of a test is a claim of at most 60 characters, and no two types of one
//! crate have the same name, unless they are the same concept.

use std::{collections::BTreeMap, fs, path::PathBuf};

use dlock_tests::{crates, root, rust_files};

/// The longest name of a test, and of any other function.
const LONGEST: usize = 60;

/// The subject of a test name is a thing, never a relative clause.
const OPENINGS: [&str; 3] = ["what_", "who_", "whoever_"];

/// The types of a crate that share a name because they are the same concept, with the reason.
const ONE_CONCEPT: [(&str, &[&str], &str); 7] = [
    ("dlock-core", &["Instant", "Mutex"], "`sync` models them for schedules"),
    (
        "dlock-models",
        &["Action", "Claim", "Client", "Letter", "Node", "Phase", "Rule", "State"],
        "each model has its own",
    ),
    ("dlock-etcd", &["Secure"], "with TLS, and without"),
    ("dlock-sql", &["Notifier", "SqliteListener"], "with sockets, and where there are none"),
    ("dlock-sql", &["Arg", "Opened", "Source", "Tables"], "each database has its own"),
    (
        "dlock-testlab",
        &["Ensemble", "Options"],
        "public, and qualified by the module of its server",
    ),
    ("dlock-testlab", &["Part", "Programs"], "each server has its own"),
];

/// A file and its text.
type Source = (String, String);

/// The folders of all crates by their names.
fn folders() -> BTreeMap<String, PathBuf> {
    let mut folders = crates();
    folders.insert("dlock".to_owned(), root().to_owned());
    folders
}

/// The word that a text begins with.
fn word(text: &str) -> &str {
    text.split(|c: char| c != '_' && !c.is_alphanumeric()).next().unwrap_or_default()
}

/// An item without `pub`, `pub(..)` and `async`.
fn bare(line: &str) -> &str {
    let line = match line.strip_prefix("pub(") {
        Some(rest) => rest.split_once(") ").map_or("", |(_, item)| item),
        None => line.strip_prefix("pub ").unwrap_or(line),
    };
    line.strip_prefix("async ").unwrap_or(line)
}

/// Returns the names of the functions in a source: tests, cases of the conformance kit and
/// scenarios are functions. Also returns the names of scenarios in quotes, as in `"group::name"`.
fn functions(source: &str) -> Vec<&str> {
    let declared = |line| bare(line).strip_prefix("fn ").map(word);
    let lines = source.lines().map(str::trim_start);
    let quoted = source.split('"').filter_map(|text| Some(text.split_once("::")?.1));
    let quoted = quoted.filter(|name| word(name) == *name);
    lines.filter_map(declared).chain(quoted).collect()
}

/// The names of the types in a source that are declared in a module, not in a function or an `impl`.
/// It follows the indentation, which `scripts/test` checks.
fn types(source: &str) -> Vec<&str> {
    let (mut found, mut depth) = (Vec::new(), 0);
    for line in source.lines() {
        let code = line.trim_start();
        let indent = line.len() - code.len();
        let item = bare(code);
        if indent == depth {
            let kinds = ["struct ", "enum ", "trait ", "union ", "type "];
            found.extend(kinds.iter().find_map(|kind| item.strip_prefix(kind)).map(word));
            depth += if item.starts_with("mod ") && item.ends_with('{') { 4 } else { 0 };
        } else if indent + 4 == depth && code == "}" {
            depth -= 4;
        }
    }
    found
}

/// Names that are too long, or have a relative clause as their subject.
fn bad_names(sources: &[Source]) -> Vec<String> {
    let is_bad = |name: &str| {
        name.len() > LONGEST || OPENINGS.iter().any(|opening| name.starts_with(opening))
    };
    let of = |(path, text): &Source| {
        let bad = functions(text).into_iter().filter(|name| is_bad(name));
        bad.map(|name| format!("{path}: {name}")).collect::<Vec<_>>()
    };
    sources.iter().flat_map(of).collect()
}

/// The names that several types have, and where these are.
fn shared(sources: &[Source]) -> BTreeMap<&str, Vec<&str>> {
    let mut all: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (path, text) in sources {
        for name in types(text) {
            all.entry(name).or_default().push(path);
        }
    }
    all.retain(|_, files| files.len() > 1);
    all
}

#[test]
fn test_names_are_short_claims() {
    let parts = ["src", "tests"];
    let folders = folders().into_values().flat_map(|folder| parts.map(|part| folder.join(part)));
    let folders = folders.filter(|folder| folder.is_dir());
    let sources: Vec<_> = folders.flat_map(|folder| rust_files(&folder)).collect();
    let seen: usize = sources.iter().map(|(_, text)| functions(text).len()).sum();
    assert!(seen > 5000, "only {seen} functions were found");
    let wrong = bad_names(&sources);
    assert!(wrong.is_empty(), "rename to a claim of at most {LONGEST} characters: {wrong:#?}");
}

#[test]
fn a_type_name_stands_for_one_concept() {
    let mut wrong = Vec::new();
    for (name, folder) in folders() {
        let folder = folder.join("src");
        // `dlock-schedules` compiles the sources of another crate.
        let sources = if folder.is_dir() { rust_files(&folder) } else { Vec::new() };
        let mut shared = shared(&sources);
        for (_, types, reason) in ONE_CONCEPT.iter().filter(|(of, ..)| *of == name) {
            for one in *types {
                if shared.remove(one).is_none() {
                    wrong.push(format!("{name}: only one type is called {one} now ({reason})"));
                }
            }
        }
        wrong.extend(shared.iter().map(|(one, files)| format!("{name}: {one} in {files:?}")));
    }
    assert!(wrong.is_empty(), "rename, or list in ONE_CONCEPT with the reason: {wrong:#?}");
}

#[test]
fn planted_names_are_found() {
    let long = "a".repeat(LONGEST + 1);
    let source = format!(
        "/// fn a() {{\n#[tokio::test]\nasync fn {long}() {{\n    #[test]\n    fn who_waits(\n\
         pub(crate) fn fine() {{\n    \"fault::what_is_lost\",\n    \"a::b c\","
    );
    let names = [&*long, "who_waits", "fine", "what_is_lost"];
    assert_eq!(functions(&source), names);
    let bad = bad_names(&[("f".to_owned(), source.clone())]);
    assert_eq!(bad, [names[0], names[1], names[3]].map(|name| format!("f: {name}")));
    let one = "pub struct A<T>(T);\nimpl B for A {\n    type C = u8;\n}\nmod tests {\n    \
               mod inner {\n        pub(super) enum A {\n            C,\n        }\n    }\n    \
               fn f() {\n        struct D;\n    }\n}\npub(in crate::x) trait D: E {\n";
    assert_eq!(types(one), ["A", "A", "D"]);
    let two = "type D = u8;\nunion C {\n/// struct A\n";
    let files = [("one".to_owned(), one.to_owned()), ("two".to_owned(), two.to_owned())];
    let expected = [("A", vec!["one", "one"]), ("D", vec!["one", "two"])];
    assert_eq!(shared(&files), BTreeMap::from(expected));
}

/// Words of the glossary's column "avoid" that have no other meaning in a name.
const AVOIDED: [&str; 16] = [
    "belief",
    "cohort",
    "ears",
    "give_back",
    "hand_over",
    "harm",
    "let_go",
    "patience",
    "place",
    "quiet",
    "tale",
    "told",
    "trouble",
    "upkeep",
    "voice",
    "withdraw",
];

/// A name in segments: `PgEars` is `pg_ears`.
fn segments(name: &str) -> String {
    let mut snake = String::new();
    let mut last = '_';
    for c in name.chars() {
        if c.is_uppercase() && (last.is_lowercase() || last.is_ascii_digit()) {
            snake.push('_');
        }
        snake.extend(c.to_lowercase());
        last = c;
    }
    snake
}

/// The avoided word in a name.
fn avoided(name: &str) -> Option<&'static str> {
    let name = format!("_{}_", segments(name));
    AVOIDED.into_iter().find(|word| name.contains(&format!("_{word}_")))
}

/// The keywords of the items whose names are checked.
const KINDS: [&str; 9] =
    ["fn", "struct", "enum", "trait", "union", "type", "mod", "const", "static"];

/// The names of files, modules, types, functions and constants that have an avoided word.
fn avoided_names(sources: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in sources {
        let parts = path.rsplit('/').take(2).map(|part| part.trim_end_matches(".rs"));
        let declared = text.lines().filter_map(|line| {
            let item = bare(line.trim_start());
            let item = item.strip_prefix("const fn ").or_else(|| {
                item.split_once(' ').and_then(|(kind, name)| KINDS.contains(&kind).then_some(name))
            });
            item.map(word)
        });
        let names = parts.take(1).chain(declared).filter(|name| avoided(name).is_some());
        found.extend(names.map(|name| format!("{path}: {name}")));
    }
    found
}

#[test]
fn names_have_no_avoided_word() {
    let rules =
        fs::read_to_string(root().join("docs/contributing/prose.md")).expect("the glossary");
    for word in AVOIDED {
        let phrases =
            [word.replace('_', "-"), word.replace('_', " "), word.replace("give_", "gives ")];
        let listed = phrases.iter().any(|phrase| rules.contains(&format!("`{phrase}`")));
        assert!(listed || word == "told", "`{word}` is not in the glossary");
    }
    let mut wrong = Vec::new();
    for (_, folder) in folders() {
        let parts = ["benches", "examples", "src", "tests"].map(|part| folder.join(part));
        let sources: Vec<_> =
            parts.iter().filter(|part| part.is_dir()).flat_map(|part| rust_files(part)).collect();
        wrong.extend(avoided_names(&sources));
    }
    assert!(wrong.is_empty(), "use the terms of docs/contributing/prose.md: {wrong:#?}");
}

#[test]
fn planted_avoided_words_are_found() {
    let source = "pub(crate) struct PgEars;\nmod tests {\n    async fn let_go_of_it() {}\n    \
                  const fn bears() {}\n    fn is_told() {}\n// fn told() {}\nenum Place {\n    \
                  fn a() {}\npub(crate) const PATIENCE: u8 = 1;";
    let files = [("a/voice.rs".to_owned(), source.to_owned())];
    let found = ["voice", "PgEars", "let_go_of_it", "is_told", "Place", "PATIENCE"];
    assert_eq!(avoided_names(&files), found.map(|name| format!("a/voice.rs: {name}")));
}
