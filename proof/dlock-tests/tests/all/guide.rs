//! The guide and the other texts agree with the repository: their links lead to files and headings,
//! their commands name existing things, and their Rust code is compiled. `cargo test --doc` runs
//! that code: see `proof/dlock-tests/src/guide.rs`.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use dlock_tests::{
    Text, Typed, chapters, console, fenced, kept, links, root, rust_is_tested, slugs, spans, texts,
};
use serde_json::Value;

/// Returns the fault of a link of this text, if there is one.
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

/// Returns the fault of a path in backticks, if it is a path of the repository and has one.
fn missing(text: &Text, span: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let (top, rest) = span.split_once('/')?;
    let ours = !top.is_empty() && !rest.is_empty() && span.chars().all(plain);
    let gone = ours && root().join(top).is_dir() && !root().join(span).exists();
    gone.then(|| format!("{}: there is no {span}", text.path))
}

/// The tests that a line names as in "`one` and `two` in `tests/file.rs`", if they are not in
/// that file.
fn missing_tests(text: &Text, line: &str) -> Vec<String> {
    // Text and code spans alternate.
    let parts: Vec<_> = line.split('`').collect();
    let mut wrong = Vec::new();
    for at in (3..parts.len()).step_by(2).filter(|at| parts[*at].ends_with(".rs")) {
        let beside = Path::new(&text.path).parent().expect("a file is in a folder");
        let paths = [root().join(parts[at]), root().join(beside).join(parts[at])];
        let Some(code) = paths.iter().find_map(|path| fs::read_to_string(path).ok()) else {
            continue;
        };
        let mut name = at;
        while name >= 3 && [" in ", " and ", ", "].contains(&parts[name - 1]) {
            name -= 2;
            let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            if parts[name].chars().all(is_name) && !code.contains(parts[name]) {
                wrong.push(format!("{}: no {} in {}", text.path, parts[name], parts[at]));
            }
        }
    }
    wrong
}

#[test]
fn every_test_that_a_text_names_is_in_its_file() {
    let texts = texts(root());
    let lines = texts.iter().flat_map(|text| text.content.lines().map(move |line| (text, line)));
    let wrong: Vec<_> = lines.flat_map(|(text, line)| missing_tests(text, line)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
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
    let known: BTreeSet<_> = SUBCOMMANDS.iter().map(|(name, _)| *name).collect();
    assert_eq!(known.len(), SUBCOMMANDS.len(), "one is there twice");
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

/// Returns the code without the parts that depend on the width of lines: space, the marks of
/// comments, and commas at the end of lists.
fn plain(code: &str) -> String {
    let lines = code.lines().map(|line| line.trim().trim_start_matches('/'));
    let mut text: String = lines.flat_map(str::split_whitespace).collect();
    for end in [")", "]", "}"] {
        text = text.replace(&format!(",{end}"), end);
    }
    text
}

/// Returns the lines of fenced blocks that a narrow screen cuts.
fn wide(text: &Text) -> Vec<String> {
    let lines =
        fenced(&text.content).filter(|(block, line)| block.is_some() && line.chars().count() > 80);
    lines.map(|(_, line)| format!("{}: {line}", text.path)).collect()
}

#[test]
fn code_and_output_have_at_most_80_columns() {
    // These show large diagrams.
    let drawn =
        |text: &&Text| ["ARCHITECTURE.md", "DESIGN.md"].iter().any(|end| text.path.ends_with(end));
    let texts = texts(root());
    let found: Vec<_> = texts.iter().filter(|text| !drawn(text)).flat_map(wide).collect();
    assert!(found.is_empty(), "wrap with \\ at the end of a line: {found:#?}");
    let text = |line: &str| Text {
        path: "x.md".into(),
        content: format!("{line}\n```text\n{line}\n```\n"),
    };
    assert!(wide(&text(&"é".repeat(80))).is_empty());
    assert_eq!(wide(&text(&"é".repeat(81))).len(), 1);
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

/// The subcommands of `dlock` with their own options; `url`, `url-file` and
/// `connect-timeout` belong to all.
const SUBCOMMANDS: [(&str, &[&str]); 11] = [
    ("break", &["yes", "json"]),
    ("completions", &[]),
    ("doctor", &["strict", "token", "json"]),
    ("guarantees", &["json"]),
    ("help", &[]),
    ("inspect", &["json"]),
    ("list", &["limit", "json"]),
    ("man", &[]),
    ("raise-tokens", &["json"]),
    (
        "run",
        &[
            "name",
            "wait",
            "lease",
            "lock-delay",
            "shared",
            "semaphore",
            "kill-after",
            "busy-code",
            "keep-url",
            "foreground",
            "verbose",
            "json",
        ],
    ),
    ("watch", &["name", "interval", "count", "limit", "json"]),
];

/// Options of cargo without a value.
const ALONE: [&str; 7] = [
    "--release",
    "--locked",
    "--offline",
    "--all-features",
    "--no-default-features",
    "--all-targets",
    "--doc",
];

/// The metadata of cargo about the packages here.
struct Workspace {
    packages: Vec<Value>,
    /// The source of each example, under its name.
    examples: Vec<(String, String)>,
}

impl Workspace {
    pub(crate) fn read(root: &Path) -> Self {
        let output = Command::new(env!("CARGO"))
            .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
            .current_dir(root)
            .output()
            .expect("cargo runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let read: Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
        let packages = read["packages"].as_array().expect("a list of packages").clone();
        let examples = packages.iter().flat_map(|package| targets(package, "example"));
        let examples = examples
            .map(|target| (text(&target["name"]), source(Path::new(&text(&target["src_path"])))))
            .collect();
        Self { packages, examples }
    }

    /// The names of all examples.
    pub(crate) fn examples(&self) -> impl Iterator<Item = &str> {
        self.examples.iter().map(|(name, _)| name.as_str())
    }

    fn package(&self, name: &str) -> Option<&Value> {
        self.packages.iter().find(|package| package["name"] == name)
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn targets<'a>(package: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    let all = package["targets"].as_array().map_or(&[][..], Vec::as_slice);
    all.iter().filter(move |target| {
        target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|one| one == kind))
    })
}

/// Returns all files of a program as one text, with the files that all examples share.
fn source(main: &Path) -> String {
    let folder = main.parent().expect("a file is in a folder");
    let mut files = vec![main.to_owned()];
    if main.ends_with("main.rs") {
        files =
            fs::read_dir(folder).expect("it can be listed").flatten().map(|f| f.path()).collect();
    }
    files.push(root().join("examples/given/mod.rs"));
    files.iter().map(|file| fs::read_to_string(file).unwrap_or_default()).collect()
}

/// Returns the fault of a command, if there is one. Commands of other programs are not checked.
fn complaint(workspace: &Workspace, line: &str) -> Option<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    words.split(|word| ["|", "&&", ";"].contains(word)).find_map(|command| {
        let is_setting = |word: &&&str| word.contains('=') && !word.starts_with('-');
        let settings = command.iter().take_while(is_setting).count();
        match &command[settings..] {
            ["cargo", verb @ ("run" | "test"), arguments @ ..] => {
                cargo(workspace, verb, arguments).err()
            }
            ["dlock", arguments @ ..] => dlock(arguments).err(),
            _ => None,
        }
    })
}

fn cargo(workspace: &Workspace, verb: &str, arguments: &[&str]) -> Result<(), String> {
    let (mut package, mut features, mut target) = ("dlock", Vec::new(), None);
    let (mut all_features, mut default) = (false, true);
    let mut words = arguments.iter();
    let mut own: &[&str] = &[];
    while let Some(word) = words.next() {
        let mut value = || words.next().copied().ok_or(format!("nothing behind {word}"));
        match *word {
            "-p" | "--package" => package = value()?,
            "--features" => features = value()?.split(',').collect(),
            "--example" => target = Some(("example", value()?)),
            "--test" => target = Some(("test", value()?)),
            "--bin" => target = Some(("bin", value()?)),
            "--" => {
                own = words.as_slice();
                break;
            }
            alone if ALONE.contains(&alone) => {
                all_features |= alone == "--all-features";
                default &= alone != "--no-default-features";
            }
            filter if verb == "test" && !filter.starts_with('-') => {}
            other => return Err(format!("cargo {verb} is not known here to take {other}")),
        }
    }
    let found = workspace.package(package).ok_or(format!("no package {package}"))?;
    let unknown = features.iter().find(|feature| found["features"].get(feature).is_none());
    if let Some(feature) = unknown {
        return Err(format!("{package} has no feature {feature}"));
    }
    let Some((kind, name)) = target else { return Ok(()) };
    let target = targets(found, kind).find(|target| target["name"] == name);
    let target = target.ok_or(format!("{package} has no {kind} {name}"))?;
    let needed = target["required-features"].as_array().map_or(&[][..], Vec::as_slice);
    let on = enabled(found, &features, default);
    let is_on = |need: &&Value| on.iter().any(|feature| *need == feature);
    if let Some(need) = needed.iter().find(|need| !all_features && !is_on(need)) {
        return Err(format!("{name} needs the feature {need}"));
    }
    let source =
        workspace.examples.iter().find(|(example, _)| kind == "example" && example == name);
    let options = own.iter().filter_map(|word| word.strip_prefix("--"));
    match options
        .zip(source.into_iter().cycle())
        .find(|(option, (_, source))| !source.contains(&format!("\"{option}\"")))
    {
        Some((option, _)) => Err(format!("{name} has no option --{option}")),
        None => Ok(()),
    }
}

/// Returns these features and those that they enable.
fn enabled(package: &Value, features: &[&str], default: bool) -> Vec<String> {
    let mut on: Vec<String> = features.iter().map(|feature| (*feature).to_owned()).collect();
    on.extend(default.then(|| "default".to_owned()));
    let mut at = 0;
    while let Some(feature) = on.get(at) {
        let more = package["features"][feature].as_array().map_or(&[][..], Vec::as_slice);
        let new: Vec<_> = more.iter().map(text).filter(|name| !on.contains(name)).collect();
        on.extend(new);
        at += 1;
    }
    on
}

fn dlock(arguments: &[&str]) -> Result<(), String> {
    let [subcommand, rest @ ..] = arguments else { return Err("no subcommand".to_owned()) };
    let known = SUBCOMMANDS.iter().find(|(name, _)| name == subcommand);
    let (_, options) = known.ok_or(format!("dlock has no subcommand {subcommand}"))?;
    let own = rest.iter().take_while(|word| **word != "--");
    let mut given = own.filter_map(|word| word.strip_prefix("--"));
    let is_known = |option: &&str| {
        ["url", "url-file", "connect-timeout", "help"].contains(option) || options.contains(option)
    };
    match given.find(|option| !is_known(option)) {
        Some(option) => Err(format!("dlock {subcommand} has no option --{option}")),
        None => Ok(()),
    }
}
