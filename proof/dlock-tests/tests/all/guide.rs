//! The guide and the other texts say what is there: their links lead to files and headings, their
//! commands name what exists, and their Rust code is compiled. What runs of it, `cargo test --doc`
//! runs: see `proof/dlock-tests/src/guide.rs`.

mod commands;

use std::{collections::BTreeSet, fs, path::Path};

use commands::{Workspace, complaint};
use dlock_tests::{
    Text, Typed, chapters, console, fenced, kept, links, root, rust_is_tested, slugs, spans, texts,
};

/// What is wrong with a link of this text, if anything is.
fn broken(text: &Text, link: &str) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = link.split_once('#').map_or((link, None), |(f, a)| (f, Some(a)));
    let path = match file {
        "" => root().join(&text.path),
        file => root().join(&text.path).parent().expect("a file is in a folder").join(file),
    };
    if !path.exists() {
        return Some(format!("{}: no file at {link}", text.path));
    }
    let target = path.to_str().expect("UTF-8");
    let found = anchor.is_none_or(|anchor| {
        slugs(&Text::read(Path::new(""), target).content).iter().any(|slug| slug == anchor)
    });
    (!found).then(|| format!("{}: no heading for {link}", text.path))
}

/// What is wrong with a path in backticks, if it is one of the repository.
fn missing(text: &Text, span: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let (top, rest) = span.split_once('/')?;
    let ours = !top.is_empty() && !rest.is_empty() && span.chars().all(plain);
    let gone = ours && root().join(top).is_dir() && !root().join(span).exists();
    gone.then(|| format!("{}: there is no {span}", text.path))
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let texts = texts(root());
    let wrong: Vec<_> = texts
        .iter()
        .flat_map(|text| links(&text.content).into_iter().filter_map(|link| broken(text, &link)))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_path_that_the_guide_names_is_there() {
    let texts = texts(root());
    let wrong: Vec<_> = texts
        .iter()
        .filter(|text| text.path.starts_with("docs/"))
        .flat_map(|text| spans(&text.content).into_iter().filter_map(|span| missing(text, &span)))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_chapter_is_in_the_summary_and_the_other_way_round() {
    let summary = Text::read(root(), "docs/src/SUMMARY.md");
    let listed = links(&summary.content);
    let once: BTreeSet<String> = listed.iter().cloned().collect();
    assert_eq!(listed.len(), once.len(), "a chapter is in SUMMARY.md twice");
    assert_eq!(once, chapters(root()));
}

#[test]
fn every_command_names_what_exists() {
    let workspace = Workspace::read(root());
    let mut seen = 0;
    let mut wrong = Vec::new();
    for text in texts(root()) {
        for Typed { command, .. } in console(&text.content) {
            seen += 1;
            if let Some(what) = complaint(&workspace, &command) {
                wrong.push(format!("{}: {what}: {command}", text.path));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(seen >= 10, "only {seen} commands were found");
}

#[test]
fn every_example_is_in_the_index_with_its_command() {
    let workspace = Workspace::read(root());
    let index = Text::read(root(), "examples/README.md");
    let commands: Vec<_> =
        spans(&index.content).into_iter().filter(|span| span.starts_with("cargo ")).collect();
    let wrong: Vec<_> =
        commands.iter().filter_map(|command| complaint(&workspace, command)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    let named = commands.iter().filter_map(|command| Some(command.split_once("--example ")?.1));
    let named: BTreeSet<_> = named.collect();
    let there: BTreeSet<_> = workspace.examples().collect();
    assert_eq!(named, there);
}

#[test]
fn the_subcommands_known_here_are_those_of_the_command() {
    let known: BTreeSet<_> = commands::SUBCOMMANDS.iter().map(|(name, _)| *name).collect();
    assert_eq!(known.len(), commands::SUBCOMMANDS.len(), "one is there twice");
    let Ok(source) = fs::read_to_string(root().join("dlock-cli/src/args.rs")) else { return };
    let (_, variants) = source.split_once("enum Command {\n").expect("the subcommands");
    let variants = variants.lines().take_while(|line| !line.starts_with('}'));
    let there: BTreeSet<_> = variants
        .filter_map(|line| Some(kebab(line.trim().split_once('(')?.0)))
        .chain(["help".to_owned()])
        .collect();
    assert_eq!(known.into_iter().map(str::to_owned).collect::<BTreeSet<_>>(), there);
}

/// The subcommand of a variant: `raise-tokens` of `RaiseTokens`.
fn kebab(variant: &str) -> String {
    let mut name = String::new();
    for letter in variant.chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.extend(letter.to_lowercase());
    }
    name
}

#[test]
fn every_chapter_with_rust_code_is_tested() {
    let tested = fs::read_to_string(root().join("proof/dlock-tests/src/guide.rs"))
        .expect("the list of chapters");
    let wrong: Vec<_> = chapters(root())
        .into_iter()
        .filter(|name| {
            rust_is_tested(&Text::read(root(), &format!("docs/src/{name}")).content)
                != tested.contains(&format!("/docs/src/{name}\""))
        })
        .collect();
    assert!(
        wrong.is_empty(),
        "proof/dlock-tests/src/guide.rs and the guide do not agree on {wrong:?}"
    );
}

/// The guide's page of guarantees: GUARANTEES.md with links that lead to chapters.
fn page_of_guarantees() -> String {
    let text = Text::read(root(), "GUARANTEES.md").content;
    let mut page =
        "<!-- A copy of GUARANTEES.md with other links, for mdBook and for code hosts: change \
                    that file, and run the test guarantees_are_in_the_guide with \
                    DLOCK_UPDATE_GOLDEN=1. -->\n\n"
            .to_owned();
    for line in text.lines() {
        let line = match line.split_once("]: ") {
            Some(("[`Guarantees`", _)) => {
                "[`Guarantees`]: choosing.md#availability-against-consistency".to_owned()
            }
            Some(("[`Fence`", _)) => "[`Fence`]: fencing.md#a-fence-in-front".to_owned(),
            _ => line
                .replace("](docs/src/", "](")
                .replace("]: docs/src/", "]: ")
                .replace("[Soak](docs/contributing/tools.md#soak)", "`docs/contributing/tools.md`"),
        };
        page += &(line + "\n");
    }
    page
}

#[test]
fn guarantees_are_in_the_guide() {
    kept("docs/src/guarantees.md", &page_of_guarantees(), "Change GUARANTEES.md first.");
}

/// The Rust code of a chapter that rustdoc does not run.
fn ignored_code(chapter: &str) -> Vec<&str> {
    let blocks = chapter.split("```rust,ignore\n").skip(1);
    blocks.filter_map(|rest| Some(rest.split_once("```")?.0)).collect()
}

/// The code without what depends on the width of its lines: space, the marks of comments, and
/// commas at the end of lists.
fn plain(code: &str) -> String {
    let lines = code.lines().map(|line| line.trim().trim_start_matches('/'));
    let mut text: String = lines.flat_map(str::split_whitespace).collect();
    for end in [")", "]", "}"] {
        text = text.replace(&format!(",{end}"), end);
    }
    text
}

/// Blocks of these languages fit on a narrow screen. The output of programs is as wide as it is.
const NARROW: [&str; 7] = ["rust", "toml", "sh", "yaml", "sql", "ini", "go"];

#[test]
fn code_in_the_guide_has_at_most_80_columns() {
    let mut wide = Vec::new();
    for name in chapters(root()) {
        let content = Text::read(root(), &format!("docs/src/{name}")).content;
        for (block, line) in fenced(&content) {
            let language = block.and_then(|block| block.split(',').next()).unwrap_or_default();
            let typed = language == "console" && line.starts_with("$ ");
            // Lines that begin with # are hidden in the book.
            let hidden = language == "rust" && line.starts_with("# ");
            let narrow = typed || (NARROW.contains(&language) && !hidden);
            if narrow && line.chars().count() > 80 {
                wide.push(format!("{name}: {line}"));
            }
        }
    }
    assert!(wide.is_empty(), "{wide:#?}");
}

#[test]
fn code_of_the_web_service_is_that_of_its_example() {
    let chapter = Text::read(root(), "docs/src/web-service.md");
    let files = fs::read_dir(root().join("examples/lab/examples/web_service")).expect("a folder");
    let example: String = files
        .flatten()
        .map(|file| plain(&fs::read_to_string(file.path()).expect("a source file")))
        .collect();
    let blocks = ignored_code(&chapter.content);
    assert!(blocks.len() >= 5, "only {} blocks were found", blocks.len());
    let wrong: Vec<_> =
        blocks.into_iter().filter(|block| !example.contains(&plain(block))).collect();
    assert!(wrong.is_empty(), "the example has other code: {wrong:#?}");
}

#[test]
fn first_program_of_the_readme_is_part_of_its_tested_program() {
    let readme = Text::read(root(), "README.md").content;
    let (_, tested) = readme.split_once("```rust\n").expect("a program");
    let (tested, _) = tested.split_once("```").expect("its end");
    // The tested program needs no server.
    let first = ignored_code(&readme).concat().replace("redis://localhost", "memory:");
    assert!(!first.is_empty() && first.lines().count() <= 4, "{first}");
    for line in first.lines() {
        assert!(plain(tested).contains(&plain(line)), "the tested program lacks: {line}");
    }
}

#[test]
fn wrong_links_paths_and_commands_are_found() {
    let text = |content: &str| Text { path: "docs/src/x.md".into(), content: content.into() };
    for (link, is_wrong) in [
        ("../../README.md", false),
        ("../../README.md#stores", false),
        ("https://example.com/none.md", false),
        ("../../README.md#shops", true),
        ("none.md", true),
        ("none.md#stores", true),
    ] {
        assert_eq!(broken(&text(""), link).is_some(), is_wrong, "{link}");
    }
    for (span, is_wrong) in [
        ("src/lib.rs", false),
        ("redis://host/0", false),
        ("inventory/42", false),
        ("src/none.rs", true),
        ("examples/none.rs", true),
    ] {
        assert_eq!(missing(&text(""), span).is_some(), is_wrong, "{span}");
    }
    let workspace = Workspace::read(root());
    for (command, is_wrong) in [
        ("cargo run --features sqlite --example counting", false),
        ("cargo run --example quickstart -- memory:", false),
        ("cargo test -p dlock-core", false),
        ("cargo run -p dlock-soak --bin dlock-soak -- --list", false),
        ("cargo run --no-default-features -p dlock-soak --bin dlock-soak", true),
        ("mdbook build docs", false),
        ("dlock run --name job --wait 0 -- ./report.sh --fast", false),
        ("dlock help run", false),
        ("cargo run --example none", true),
        ("cargo run --example counting", true),
        ("cargo run --features none --example quickstart", true),
        ("cargo run --features sqlite,none --example counting", true),
        ("cargo run --exampel quickstart", true),
        ("cargo run --features sqlite --example counting -- --none", true),
        ("cargo test -p dlock-none", true),
        ("cargo test -p dlock-core --test none", true),
        ("dlock none", true),
        ("dlock run --none x -- ./report.sh", true),
        ("dlock", true),
    ] {
        assert_eq!(complaint(&workspace, command).is_some(), is_wrong, "{command}");
    }
}
