//! The commands in the guide and the other texts print the output that is shown there. The built
//! examples run here, on private servers. Those of the command `dlock` run in the tests of
//! `dlock-cli`.

use std::{path::Path, process::Stdio, time::Duration};

use dlock_testlab::{
    Stop, Verdict,
    postgres::{self, PostgresServer},
    redis::{self, RedisServer},
};
use dlock_tests::{Text, console, root, shape, texts};
use tempfile::TempDir;
use tokio::{process::Command, time::timeout};

/// The commands that can't be run in a test, with the reasons.
const NOT_HERE: [(&str, &str); 5] = [
    ("./scripts/test", "it runs this test"),
    ("cargo install --path dlock-cli", "it changes the machine"),
    ("cargo test -p dlock-testkit --test broken -- mutant", "it is a test, and runs as one"),
    (
        "cargo run --release -p dlock-soak -- --list",
        "it is of another package, which runs it in its own tests",
    ),
    (
        "cargo run --release -p dlock-examples-lab --example redis_vs_zk",
        "it takes minutes, and is run by scripts/test, with --quick",
    ),
];

/// A line of a text that matches any number of lines of the output.
const OMITTED: &str = "...";

/// Options that shorten an example that runs long by default.
const SHORT: [(&str, &[&str]); 1] = [("inventory", &["--items", "12", "--buyers", "40"])];

/// The command that builds the examples.
const BUILD: &str = "cargo build -p dlock -p dlock-examples-lab --examples --all-features";

/// A backstop on a busy machine, never a measure of speed.
const BOUND: Duration = Duration::from_secs(300);

/// The commands of the texts, by the way in which they are tested.
#[derive(Debug, PartialEq, Eq)]
enum Kind {
    /// An example, and its arguments.
    Example {
        name: String,
        arguments: Vec<String>,
    },
    /// A command `dlock`, or a setting of its environment.
    OfTheCommand,
    NotHere,
}

/// Returns the way to test a command; `None` for an unknown command.
fn kind(command: &str) -> Option<Kind> {
    let words: Vec<&str> = command.split_whitespace().map(|word| word.trim_matches('\'')).collect();
    if NOT_HERE.iter().any(|(known, _)| words.iter().copied().eq(known.split_whitespace())) {
        return Some(Kind::NotHere);
    }
    match words.as_slice() {
        ["dlock", ..] => return Some(Kind::OfTheCommand),
        ["export", setting] if setting.starts_with("DLOCK_") => return Some(Kind::OfTheCommand),
        ["cargo", "run", ..] => {}
        _ => return None,
    }
    let of_cargo = words.iter().take_while(|word| **word != "--");
    let arguments = words.iter().skip(of_cargo.clone().count() + 1);
    let behind = |flag| of_cargo.clone().skip_while(move |word| **word != flag).nth(1);
    let name = (*behind("--example")?).to_owned();
    Some(Kind::Example { name, arguments: arguments.map(|word| (*word).to_owned()).collect() })
}

/// A command of a text that runs an example.
struct Printed {
    /// The text, and the command.
    place: String,
    name: String,
    arguments: Vec<String>,
    /// The output in the text, line by line.
    shown: Vec<String>,
}

/// Returns the commands of all texts for this store: `memory` for those that name no server.
fn of_store(store: &str) -> Vec<Printed> {
    let mut found = Vec::new();
    for text in texts(root()) {
        for typed in console(&text.content) {
            if let Some(Kind::Example { name, arguments }) = kind(&typed.command) {
                let server = arguments.iter().find_map(|word| word.split_once("://"));
                if server.map_or("memory", |(scheme, _)| scheme) == store {
                    let place = format!("{}: {}", text.path, typed.command);
                    found.push(Printed { place, name, arguments, shown: typed.prints });
                }
            }
        }
    }
    assert!(!found.is_empty(), "no text has a command for {store}");
    found
}

/// Runs the commands of a store, with `url` in place of the server that they name.
async fn all_run(store: &str, url: Option<String>) -> Verdict {
    for mut printed in of_store(store) {
        for word in &mut printed.arguments {
            if let (true, Some(url)) = (word.contains("://"), &url) {
                let query = word.split_once('?').map_or(String::new(), |(_, q)| format!("?{q}"));
                *word = format!("{url}{query}");
            }
        }
        if let Some((_, short)) = SHORT.iter().find(|(long, _)| *long == printed.name) {
            printed.arguments.extend(short.iter().map(|word| (*word).to_owned()));
        }
        printed.runs().await?;
    }
    Ok(())
}

impl Printed {
    async fn runs(&self) -> Verdict {
        let Self { place, name, arguments, shown } = self;
        // Cargo builds the examples of all packages into one directory, and with the whole
        // workspace before the tests.
        let test = std::env::current_exe()?;
        let profile =
            test.parent().and_then(Path::parent).ok_or("a test is in target/PROFILE/deps")?;
        let file = format!("{name}{}", std::env::consts::EXE_SUFFIX);
        let program = profile.join("examples").join(file);
        if !program.exists() {
            let program = program.display();
            return Err(Stop::failed(format!("{place}: {program} is not built: {BUILD}")));
        }
        let directory = TempDir::new()?;
        let running = Command::new(&program)
            .args(arguments)
            .env_remove("DLOCK_URL")
            .env("TMPDIR", directory.path())
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = timeout(BOUND, running).await.map_err(|_| format!("{place}: hangs"))??;
        let said = String::from_utf8_lossy(&output.stdout);
        let told = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() || (said.is_empty() && told.is_empty()) {
            // A program that runs tests prints the failed ones on stdout.
            let last = said.lines().count().saturating_sub(60);
            let said = said.lines().skip(last).collect::<Vec<_>>().join("\n");
            return Err(Stop::failed(format!("{place}: {}, says {told:?}\n{said}", output.status)));
        }
        match shown.is_empty() || is_shown(said.lines(), shown.iter().map(String::as_str)) {
            true => Ok(()),
            false => Err(Stop::failed(format!("{place}: shown otherwise, it prints\n{said}"))),
        }
    }
}

/// Returns lines of output without the parts that differ between runs: numbers, and paths of
/// temporary files.
fn looks<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let nowhere = |line: &str| {
        let file = line.split_once("sqlite:/").and_then(|(before, rest)| {
            let (_, after) = rest.split_once("/locks.db")?;
            Some(format!("{before}sqlite:/locks.db{after}"))
        });
        file.unwrap_or_else(|| line.to_owned())
    };
    lines.map(|line| shape(&nowhere(line))).collect()
}

/// Returns whether a text shows this output, apart from parts that differ between runs and lines
/// that it leaves out.
fn is_shown<'a>(said: impl Iterator<Item = &'a str>, shown: impl Iterator<Item = &'a str>) -> bool {
    let (said, shown) = (looks(said), looks(shown));
    let parts: Vec<&[String]> = shown.split(|line| line == OMITTED).collect();
    let [first, between @ .., last] = parts.as_slice() else { return said == shown };
    let Some(mut rest) = said.strip_prefix(*first) else { return false };
    for part in between.iter().filter(|part| !part.is_empty()) {
        let Some(at) = rest.windows(part.len()).position(|lines| lines == *part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[test]
fn those_that_need_no_server_run() {
    crate::run("sqlite", all_run("memory", None));
}

#[test]
fn those_that_name_redis_run() {
    let tested = async {
        let server = RedisServer::start(&redis::Options::new()).await?;
        all_run("redis", Some(server.url())).await
    };
    crate::run("redis", tested);
}

#[test]
fn those_that_name_postgresql_run() {
    let tested = async {
        let server = PostgresServer::start(&postgres::Options::new()).await?;
        all_run("postgres", Some(server.url())).await
    };
    crate::run("postgres", tested);
}

#[test]
fn the_readme_begins_with_the_smallest_build() {
    let readme = Text::read(root(), "README.md");
    let shown = console(&readme.content).into_iter().filter(|typed| !typed.prints.is_empty());
    let shown: Vec<_> = shown.map(|typed| typed.command).collect();
    let first =
        ["cargo run --example quickstart", "cargo run --features sqlite --example inventory"];
    assert_eq!(shown, first);
}

#[test]
fn different_output_is_found() {
    let line = "worker 1 has token 23 in sqlite:/tmp/a1/locks.db: it sells";
    let again = "worker 27 has token 1 in sqlite:/var/b/locks.db: it sells";
    assert_eq!(looks([line].into_iter()), looks([again].into_iter()));
    for other in ["worker 1 has no token", "worker 1 has token 23 in sqlite:/tmp/a1/locks.db"] {
        assert_ne!(looks([line].into_iter()), looks([other].into_iter()));
    }
    assert_ne!(looks([line].into_iter()), looks([line, ""].into_iter()));
}

#[test]
fn omitted_lines_may_be_any_but_the_others_are_compared() {
    let said = ["begins", "one 1", "two", "one 2", "ends"];
    let shows = |shown: &[&str]| is_shown(said.into_iter(), shown.iter().copied());
    for shown in [
        &["begins", "one 7", "two", "one 8", "ends"][..],
        &["...", "one 7", "...", "one 8", "..."],
        &["begins", "...", "ends"],
        &["...", "two", "one 7", "ends"],
        &["..."],
    ] {
        assert!(shows(shown), "{shown:?}");
    }
    for shown in [
        &["begins", "one 7", "two"][..],
        &["...", "two", "...", "two", "..."],
        &["one 7", "..."],
        &["...", "one 7"],
        &["begins", "...", "three", "..."],
        &["begins", "...", "one 7", "...", "one 8", "two", "..."],
    ] {
        assert!(!shows(shown), "{shown:?}");
    }
}

#[test]
fn every_command_is_run_or_it_is_known_why_not() {
    let typed: Vec<(String, String)> = texts(root())
        .into_iter()
        .flat_map(|text| {
            let typed = console(&text.content).into_iter();
            typed.map(|typed| (text.path.clone(), typed.command)).collect::<Vec<_>>()
        })
        .collect();
    let unknown: Vec<_> = typed.iter().filter(|(_, command)| kind(command).is_none()).collect();
    assert!(unknown.is_empty(), "run it here, or say in NOT_HERE why not: {unknown:#?}");
    let servers = ["redis", "postgres"];
    let strange: Vec<_> = typed
        .iter()
        .filter_map(|(_, command)| match kind(command)? {
            Kind::Example { arguments, .. } => {
                let scheme = arguments.iter().find_map(|word| Some(word.split_once("://")?.0))?;
                (!servers.contains(&scheme)).then_some(command)
            }
            _ => None,
        })
        .collect();
    assert!(strange.is_empty(), "no test has a server for {strange:#?}");
    let stale = NOT_HERE.iter().filter(|(known, _)| {
        let words: Vec<_> = known.split_whitespace().collect();
        !typed.iter().any(|(_, command)| command.split_whitespace().eq(words.iter().copied()))
    });
    assert_eq!(stale.count(), 0, "NOT_HERE has a command that no text prints");
}

#[test]
fn a_command_that_nobody_has_thought_of_is_found() {
    for unknown in
        ["cargo bench", "cargo run", "cargo run --bin b", "make", "./report.sh", "export HOME=/"]
    {
        assert_eq!(kind(unknown), None, "{unknown}");
    }
    let example = |name: &str, arguments: &[&str]| Kind::Example {
        name: name.to_owned(),
        arguments: arguments.iter().map(|word| (*word).to_owned()).collect(),
    };
    for (command, expected) in [
        ("dlock list", Kind::OfTheCommand),
        ("./scripts/test", Kind::NotHere),
        ("cargo run --example a", example("a", &[])),
        ("cargo run --example b -- 'x:y?z=1' --w", example("b", &["x:y?z=1", "--w"])),
    ] {
        assert_eq!(kind(command), Some(expected), "{command}");
    }
}
