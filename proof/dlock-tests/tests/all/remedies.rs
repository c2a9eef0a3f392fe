//! Every error that a user sees contains a remedy.
//!
//! The rule is applied to the sources. Each literal that is passed to a constructor of an error, and
//! each sentence in a file that explains the errors of a driver, has a colon or a semicolon with an
//! imperative after it (`: check that it runs`), or a line in [`EXCEPT`] with the reason. The guide
//! has a row for each kind of error, and quotes only what the programs print.

use std::{iter::Peekable, str::Chars};

use dlock_tests::{Text, root, spans};

use crate::words::{SOURCES, sources};

/// The constructors of errors, and of messages that become errors. A helper that appends a remedy
/// to its argument, such as `malformed` and `unfit`, is not in the list, since its own literal is
/// checked.
const MAKERS: [&str; 14] = [
    "Error::config(",
    "Error::new(",
    "Fault::config(",
    "Fault::passing(",
    "Fault::cut(",
    "Fault::stuck(",
    "Failure::misuse(",
    "Failure::new(",
    "refuse(",
    "unavailable(",
    "value(",
    "tls(",
    "self.unsupported(",
    "no_answer(",
];

/// The files in which every sentence is the text of an error.
const FILES: [&str; 4] = ["/error.rs", "/numbers.rs", "/code.rs", "/silence.rs"];

/// The smallest number of words of a sentence.
const SENTENCE: usize = 5;

/// The first words of remedies.
const VERBS: &str = "\
    acquire add allow answer call check choose close compact connect correct create delete drop enable \
    encode end find free give grant have increase inspect keep leave let list lower make move \
    name open percent-encode raise reduce release remove repair replace report reset restore retry run \
    see set start stop take test truncate try unlock upgrade use wait write";

/// The words that may precede the verb.
const BEFORE: &[&str] =
    &["for several ", "if it requires a client certificate, ", "to create the tables, ", "or "];

/// Texts without their own remedy, with the reasons.
const EXCEPT: &[(&str, &str)] = &[
    ("{what} ({text})", "the remedy is in `what`"),
    ("{what}: {FORM}; {}", "FORM is the remedy"),
    ("{what}: waiters poll", "logged; waiters poll"),
    ("no notification can arrive: waiters poll", "logged; waiters poll"),
    ("the address can't be read ({error}): {}; {}", "FORM follows, which is the remedy"),
    ("the user lacks rights ({text}): {}", "the statement that grants them follows"),
    ("the user lacks rights ({text}): {RIGHTS}", "RIGHTS is the remedy"),
    ("no permission to run {}", "the reason within `the user lacks rights (...)`"),
    ("dlock.{name} in the URL: {error}", "the remedy is in `error`"),
    ("this backend {why}", "the remedy is in `why`"),
    ("the URL has no scheme, and begins with the host {host:.80}: {}", "a hint follows"),
    ("a backend URL has no scheme, and begins with a host: {}", "a hint follows"),
    ("no answer within {within:?}{rest}", "the remedy is in `rest`"),
    ("no answer within the wait", "the source of an error that has one"),
    ("not sent within the wait", "the source of an error that has one"),
    ("the store can't say whether these claims are held", "logged; the renewal is retried"),
    ("a semaphore of {of} permits", "a part of the text behind it"),
    ("a semaphore of {capacity} permits", "a part of the text behind it"),
    ("the token is not printable", "etcd: behind a text with a remedy"),
    ("there is no user", "etcd: behind a text with a remedy"),
    ("the lease does not exist any more", "etcd: behind a text with a remedy"),
    ("the server has ended the stream of renewals", "etcd: behind a text with a remedy"),
    ("the address is not host:port", "etcd: behind a text with a remedy"),
    ("the stream of watches has ended", "etcd: behind a text with a remedy"),
    ("dlock was built without the feature \"tls\"", "etcd: behind a text with a remedy"),
    ("{}: {error}", "etcd: behind a text with a remedy"),
    ("{host} is a learner", "etcd: behind a text with a remedy"),
    ("a mutex or read-write lock", "a part of the text behind it"),
    ("can't access at least one of the keys", "a part of an answer of Redis"),
    ("can't publish to the channel", "a part of an answer of Redis"),
    ("DB index is out of range", "a part of an answer of Redis"),
    ("ON CONFLICT clause does not match", "a part of an answer of SQLite"),
    ("not connected yet", "replaced by the first answer"),
    ("masters do not answer", "the source of an error that has one"),
    ("a master of the quorum is unreachable", "the source of an error that has one"),
    ("the store", "the name of a store"),
    (", dlock.", "separates the names of options"),
];

/// Returns whether a part of the text after a colon or a semicolon is an imperative.
fn has_remedy(text: &str) -> bool {
    let parts = text.split(": ").flat_map(|part| part.split("; "));
    parts.skip(1).any(|part| {
        let part = BEFORE.iter().find_map(|before| part.strip_prefix(before)).unwrap_or(part);
        part.starts_with("dlock needs ") || is_remedy(part)
    })
}

/// Returns whether the text begins with an imperative.
fn is_remedy(text: &str) -> bool {
    let word = text.split(|c: char| !(c.is_alphabetic() || c == '-')).next();
    VERBS.split(' ').any(|verb| Some(verb) == word)
}

fn is_excepted(text: &str) -> bool {
    EXCEPT.iter().any(|(excepted, _)| text == *excepted)
}

/// The texts of errors in a file.
fn errors(path: &str, source: &Source) -> Vec<String> {
    let mut found: Vec<String> = MAKERS.iter().flat_map(|maker| source.passed(maker)).collect();
    if FILES.iter().any(|file| path.ends_with(file)) {
        let is_sentence = |text: &&String| text.split_whitespace().count() >= SENTENCE;
        found.extend(source.texts().iter().filter(is_sentence).cloned());
    }
    found.retain(|text| text.trim().contains(' '));
    found.sort();
    found.dedup();
    found
}

fn all() -> Vec<(String, Source)> {
    let files = SOURCES.iter().flat_map(|folder| sources(&root().join(folder)));
    // Tests that are built as a part of the crate.
    let files = files.filter(|(path, _)| !path.contains("/schedules/"));
    files.map(|(path, text)| (path, Source::read(&text))).collect()
}

#[test]
fn each_error_in_the_sources_has_a_remedy() {
    let (mut count, mut wrong) = (0, Vec::new());
    for (path, source) in all() {
        for text in errors(&path, &source) {
            count += 1;
            let is_notified = has_remedy(&text) || is_excepted(&text);
            if !is_notified || text.contains("  ") {
                wrong.push(format!("{path}: {text}"));
            }
        }
    }
    assert!(count > 250, "only {count} texts of errors were found");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn each_exception_is_used() {
    let found: Vec<_> = all().iter().flat_map(|(path, source)| errors(path, source)).collect();
    let is_used = |excepted: &str| found.iter().any(|text| text == excepted && !has_remedy(text));
    let idle: Vec<_> = EXCEPT.iter().filter(|(excepted, _)| !is_used(excepted)).collect();
    assert!(idle.is_empty(), "{idle:#?}");
}

#[test]
fn each_warning_of_the_doctor_has_a_remedy() {
    let of = |source: &Source| {
        let remedies = ["Finding::warning(", "Finding::wrong("].map(|maker| source.last(maker));
        remedies.into_iter().flatten().collect::<Vec<_>>()
    };
    let all: Vec<_> = all().iter().flat_map(|(_, source)| of(source)).collect();
    assert!(all.len() > 40, "only {} remedies were found", all.len());
    let wrong: Vec<_> = all.iter().filter(|remedy| !is_remedy(remedy)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    let planted =
        "Finding::wrong(\"a\", format!(\"b\"), \"it is slow\",); Finding::warning(x, y, z)";
    assert_eq!(of(&Source::read(planted)), ["it is slow"]);
}

#[test]
fn a_planted_error_without_a_remedy_is_found() {
    let planted = r#"
        // Error::config(ConfigIssue::Url, "a comment (with a parenthesis")
        fn a() -> Error { Error::config(Url, format!("the URL is {}", "wrong (", ')')) }
        fn b() -> Error { Error::new(Config, "the \"file\" is gone: open \
            another") }
        fn c(other: &str) { other("this is not an error") }
    "#;
    let source = Source::read(planted);
    let found = errors("src/a.rs", &source);
    assert_eq!(found, ["the \"file\" is gone: open another", "the URL is {}", "wrong ("]);
    let wrong: Vec<_> = found.iter().filter(|text| !has_remedy(text)).collect();
    assert_eq!(wrong, ["the URL is {}", "wrong ("]);
    assert_eq!(errors("src/error.rs", &source).len(), 4);
    assert!(!has_remedy("no such file: it was removed") && has_remedy("no file; create one"));
}

/// The page of the guide that lists the errors.
fn page() -> Text {
    Text::read(root(), "docs/src/troubleshooting.md")
}

/// The cells of each row of its tables.
fn rows(page: &Text) -> Vec<Vec<&str>> {
    let rows = page.content.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    rows.map(|row| row.split(" | ").collect()).collect()
}

/// The variants of an enum, by its source.
fn variants(source: &str, name: &str) -> Vec<String> {
    let (_, body) = source.split_once(&format!("pub enum {name} {{")).expect("the enum");
    let (body, _) = body.split_once("\n}").expect("its end");
    let names = body.lines().map(str::trim).filter(|line| line.starts_with(char::is_uppercase));
    names.map(|line| line.split([',', '(']).next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn each_kind_of_error_has_a_row_with_cause_and_remedy() {
    let path = root().join("dlock-core/src/vocabulary/error.rs");
    let source = std::fs::read_to_string(path).expect("the source of the error");
    let page = page();
    let rows = rows(&page);
    for (name, least) in [("ErrorKind", 7), ("ConfigIssue", 20)] {
        let variants = variants(&source, name);
        assert!(variants.len() >= least, "{variants:?}");
        for variant in variants {
            let has = |row: &&Vec<&str>| spans(row[0]).first() == Some(&variant);
            let row = rows.iter().find(has);
            let cells = row.unwrap_or_else(|| panic!("no row for {name}::{variant}"));
            let filled = cells.iter().take(3).filter(|cell| cell.len() > 2).count();
            assert_eq!(filled, 3, "{cells:?}");
        }
    }
}

/// Returns the parts of a quoted message between its omissions.
fn quoted(message: &str) -> Vec<&str> {
    let parts =
        message.split("; ").flat_map(|one| one.split(": ")).flat_map(|one| one.split("..."));
    let ends: [char; 5] = [' ', '.', ',', '(', ')'];
    parts.map(|part| part.trim_matches(ends)).filter(|part| part.len() > 8).collect()
}

/// The first part of a message that no literal of the sources contains.
fn unprinted<'a>(message: &'a str, printed: &str) -> Option<&'a str> {
    quoted(message).into_iter().find(|part| !printed.contains(part.trim_end_matches(':')))
}

#[test]
fn the_guide_quotes_only_what_the_programs_print() {
    let all = all();
    let texts: Vec<&str> =
        all.iter().flat_map(|(_, source)| source.texts()).map(String::as_str).collect();
    let printed = texts.join("\n");
    let page = page();
    let messages: Vec<&str> = rows(&page)
        .into_iter()
        .filter(|cells| cells.len() == 3 && !cells[0].starts_with('`'))
        .map(|cells| cells[0])
        .collect();
    assert!(messages.len() > 40, "{messages:?}");
    let wrong: Vec<_> = messages.iter().filter_map(|one| unprinted(one, &printed)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(
        unprinted("the lock was lost; the lock ran away", &printed),
        Some("the lock ran away")
    );
}

/// Source without comments. In the code, each literal is replaced by its number between two quotes.
#[derive(Debug, Default)]
struct Source {
    code: String,
    texts: Vec<String>,
}

impl Source {
    fn read(text: &str) -> Self {
        let mut source = Self::default();
        let mut rest = text.chars().peekable();
        while let Some(c) = rest.next() {
            match c {
                '/' if rest.peek() == Some(&'/') => {
                    rest.by_ref().find(|c| *c == '\n');
                    source.code.push('\n');
                }
                'r' if !source.ends_in_word() && matches!(rest.peek(), Some('"' | '#')) => {
                    source.raw(&mut rest);
                }
                '"' => {
                    let text = plain(&mut rest);
                    source.literal(text);
                }
                '\'' => skip_char(&mut rest),
                c => source.code.push(c),
            }
        }
        source
    }

    /// All literals, in their order.
    fn texts(&self) -> &[String] {
        &self.texts
    }

    /// The literals within the arguments of each call.
    fn passed(&self, call: &str) -> Vec<String> {
        self.calls(call).flat_map(|arguments| self.within(arguments)).collect()
    }

    /// The last argument of each call, where it is a literal.
    fn last(&self, call: &str) -> Vec<String> {
        let ends = |arguments: &&str| arguments.trim_end_matches([',', ' ', '\n']).ends_with('"');
        let last = |arguments| self.within(arguments).pop();
        self.calls(call).filter(ends).filter_map(last).collect()
    }

    /// The arguments of each call, up to the parenthesis that ends them.
    fn calls(&self, call: &str) -> impl Iterator<Item = &str> {
        let begins = |at: usize| {
            let before = &self.code[..at];
            let is_other = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
            !before.ends_with(is_other) && !before.ends_with("io::")
        };
        let calls = self.code.match_indices(call).filter(move |(at, _)| begins(*at));
        calls.map(|(at, call)| arguments(&self.code[at + call.len()..]))
    }

    fn within(&self, arguments: &str) -> Vec<String> {
        let numbers = arguments.split('"').skip(1).step_by(2);
        let literal = |number: &str| self.texts.get(number.parse::<usize>().ok()?).cloned();
        numbers.filter_map(literal).collect()
    }

    fn ends_in_word(&self) -> bool {
        self.code.ends_with(|c: char| c.is_alphanumeric() || c == '_')
    }

    fn literal(&mut self, text: String) {
        self.code += &format!("\"{}\"", self.texts.len());
        self.texts.push(text);
    }

    /// A raw literal, or a name such as `r#type`.
    fn raw(&mut self, rest: &mut Peekable<Chars<'_>>) {
        let mut hashes = String::new();
        while rest.next_if_eq(&'#').is_some() {
            hashes.push('#');
        }
        if rest.next_if_eq(&'"').is_none() {
            return;
        }
        let (mut text, end) = (String::new(), format!("\"{hashes}"));
        while !text.ends_with(&end) {
            let Some(c) = rest.next() else { break };
            text.push(c);
        }
        let text = text.strip_suffix(&end).unwrap_or(&text).to_owned();
        self.literal(text);
    }
}

/// The code before the parenthesis that is not opened in it.
fn arguments(code: &str) -> &str {
    let mut depth = 1;
    let end = code.find(|c| {
        depth += match c {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        depth == 0
    });
    &code[..end.unwrap_or(code.len())]
}

/// The rest of a literal, as it is printed: a line that is continued is one line.
fn plain(rest: &mut Peekable<Chars<'_>>) -> String {
    let mut text = String::new();
    while let Some(c) = rest.next() {
        match c {
            '"' => break,
            '\\' => match rest.next() {
                Some('\n') => while rest.next_if(|c| c.is_whitespace()).is_some() {},
                Some('n') => text.push('\n'),
                Some(c) => text.push(c),
                None => break,
            },
            c => text.push(c),
        }
    }
    text
}

/// The rest of a character such as `'('`; of a lifetime nothing.
fn skip_char(rest: &mut Peekable<Chars<'_>>) {
    let mut ahead = rest.clone();
    match (ahead.next(), ahead.next()) {
        (Some('\\'), Some(_)) => {
            rest.nth(1);
            rest.by_ref().find(|c| *c == '\'');
        }
        (Some(_), Some('\'')) => {
            rest.nth(1);
        }
        _ => {}
    }
}
