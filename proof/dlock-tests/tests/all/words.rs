//! Documents and messages use the terms of the glossary: no phrase of the table "Words to avoid" in
//! docs/contributing/prose.md is in them, and no sentence begins with "Who", "What" or "Whoever".

use std::path::Path;

use dlock_tests::{Text, prose, root, rust_files, spans, texts};

/// The document with the table.
const RULES: &str = "docs/contributing/prose.md";

/// The heading of the table.
const AVOID: &str = "### Words to avoid";

/// The messages of the crates are in their sources.
pub(crate) const SOURCES: [&str; 7] = [
    "src",
    "dlock-cli/src",
    "dlock-core/src",
    "dlock-etcd/src",
    "dlock-redis/src",
    "dlock-sql/src",
    "dlock-zk/src",
];

/// The words with which no sentence begins.
const OPENINGS: [&str; 3] = ["Who ", "What ", "Whoever "];

/// Returns the table and the text after it, and the document without the table.
fn avoided(rules: &str) -> (Vec<String>, String) {
    let (before, rest) = rules.split_once(AVOID).expect("the table of words to avoid");
    let rows = rest.lines().skip(1).skip_while(|line| !line.starts_with('|'));
    let rows: Vec<_> = rows.take_while(|line| line.starts_with('|')).collect();
    let phrases = rows.iter().skip(2).filter_map(|row| spans(row).into_iter().next()).collect();
    let after = rest.split_once("\n#").map_or("", |(_, after)| after);
    (phrases, format!("{before}\n{after}"))
}

/// Returns whether the text contains the phrase, as whole words.
fn has(text: &str, phrase: &str) -> bool {
    let letter = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '-');
    text.match_indices(phrase).any(|(at, _)| {
        !letter(text[..at].chars().next_back()) && !letter(text[at + phrase.len()..].chars().next())
    })
}

/// Returns the text on one line, with single spaces, in lower case.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}

/// The string literals of Rust source, in one text; comments are left out.
fn literals(source: &str) -> String {
    let lines = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = lines.collect::<Vec<_>>().join("\n").replace("\\\"", "'").replace("'\"'", "''");
    let text = code.split('"').skip(1).step_by(2).collect::<Vec<_>>().join("\n");
    text.replace("\\\n", " ")
}

/// The Rust sources below a folder with their paths, without unit tests.
pub(crate) fn sources(folder: &Path) -> impl Iterator<Item = (String, String)> + use<> {
    let files = rust_files(folder).into_iter().filter(|(path, _)| !path.ends_with("/tests.rs"));
    files.map(|(path, text)| {
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        (path, code.to_owned())
    })
}

/// Returns the sentences that begin with a forbidden word.
fn openings(text: &str) -> Vec<String> {
    let plain = |line: &&str| !line.starts_with('#') && !line.starts_with('|');
    let text = text.lines().filter(plain).collect::<Vec<_>>().join("\n");
    let ends = [". ", "? ", "! ", ": ", "\n\n", "\n- "];
    let starts = |sentence: &&str| OPENINGS.iter().any(|opening| sentence.starts_with(opening));
    let mut found = Vec::new();
    let mut rest = text.as_str();
    loop {
        found.extend(Some(rest).filter(starts).map(|rest| rest.chars().take(60).collect()));
        let next = ends.iter().filter_map(|end| Some(rest.find(end)? + end.len())).min();
        match next {
            Some(next) => rest = &rest[next..],
            None => return found,
        }
    }
}

fn documents() -> (Vec<String>, Vec<Text>) {
    let mut texts = texts(root());
    let rules = texts.iter_mut().find(|text| text.path == RULES).expect("it is among them");
    let (phrases, rest) = avoided(&rules.content);
    rules.content = rest;
    (phrases, texts)
}

#[test]
fn documents_have_no_word_to_avoid() {
    let (phrases, texts) = documents();
    assert!(phrases.len() >= 10, "only {phrases:?} were found");
    let mut wrong = Vec::new();
    for text in &texts {
        let flat = flat(&prose(&text.content));
        wrong.extend(
            phrases.iter().filter(|p| has(&flat, p)).map(|phrase| (text.path.clone(), phrase)),
        );
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn messages_have_no_word_to_avoid() {
    let (phrases, _) = documents();
    let mut wrong = Vec::new();
    for (path, text) in SOURCES.iter().flat_map(|folder| sources(&root().join(folder))) {
        let flat = flat(&literals(&text));
        let found = phrases.iter().filter(|phrase| has(&flat, phrase));
        wrong.extend(found.map(|phrase| (path.clone(), phrase)));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn no_sentence_begins_with_who_or_what() {
    let (_, texts) = documents();
    let found = |text: &Text| openings(&prose(&text.content));
    let wrong: Vec<_> =
        texts.iter().map(|text| (&text.path, found(text))).filter(|(_, f)| !f.is_empty()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn planted_words_are_found() {
    let table =
        "a\n### Words to avoid\n\nb\n\n| a | b |\n|---|---|\n| `ears` | listener |\n\n## C\nd";
    let (phrases, rest) = avoided(table);
    assert_eq!(phrases, ["ears"]);
    assert!(rest.contains('d') && !rest.contains("ears"));
    assert!(has(&flat("the\nEars were"), "ears") && !has("the bears, earshot", "ears"));
    let source = "// \"ears\"\nwarn!(\"the \\\n    mouth \\\" of\", x, \"end\")";
    assert_eq!(flat(&literals(source)), "the mouth ' of end");
    assert_eq!(openings("A thing. Who asks? Nobody.\n\nWhat is it\n# What\n").len(), 2);
    assert!(openings("So is what is here. So who is it").is_empty());
}
