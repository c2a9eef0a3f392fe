//! A parser for the part of Markdown that the documents of this repository use.

use std::{
    collections::{BTreeSet, HashMap},
    fs,
    path::Path,
};

/// A file of the repository.
#[derive(Clone, Debug)]
pub struct Text {
    /// The path below the root of the repository.
    pub path: String,
    /// The whole content.
    pub content: String,
}

impl Text {
    /// Reads the file at this path below `root`.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn read(root: &Path, path: &str) -> Self {
        let file = root.join(path);
        let content = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{path}: {error}"));
        Self { path: path.to_owned(), content }
    }
}

/// Returns all texts of the repository.
pub fn texts(root: &Path) -> Vec<Text> {
    let mut paths: Vec<String> = [
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "GUARANTEES.md",
        "README.md",
        "SECURITY.md",
        "dlock-core/DESIGN.md",
        "dlock-etcd/DESIGN.md",
        "dlock-redis/DESIGN.md",
        "dlock-sql/DESIGN.md",
        "dlock-zk/DESIGN.md",
        "examples/README.md",
        "proof/README.md",
    ]
    .map(str::to_owned)
    .to_vec();
    for folder in ["docs/contributing", "docs/decisions"] {
        paths.extend(files(root, folder).into_iter().map(|name| format!("{folder}/{name}")));
    }
    paths.extend(chapters(root).into_iter().map(|name| format!("docs/src/{name}")));
    paths.push("docs/src/SUMMARY.md".to_owned());
    let readmes = crate::crates().into_keys().map(|name| format!("{name}/README.md"));
    paths.extend(readmes.filter(|path| root.join(path).exists()));
    paths.iter().map(|path| Text::read(root, path)).collect()
}

/// Returns the names of the guide's files without its table of contents.
///
/// # Panics
/// If there is no guide.
pub fn chapters(root: &Path) -> BTreeSet<String> {
    files(root, "docs/src").into_iter().filter(|name| name != "SUMMARY.md").collect()
}

/// Returns the names of the Markdown files in a folder.
fn files(root: &Path, folder: &str) -> BTreeSet<String> {
    fs::read_dir(root.join(folder))
        .unwrap_or_else(|error| panic!("{folder}: {error}"))
        .map(|entry| entry.expect("it can be listed").file_name().into_string().expect("UTF-8"))
        .filter(|name| name.ends_with(".md"))
        .collect()
}

/// Returns the lines, each with the language of the fenced block that contains it, if there is one.
pub fn fenced(content: &str) -> impl Iterator<Item = (Option<&str>, &str)> {
    let mut block = None;
    content.lines().filter_map(move |line| {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            block = block.is_none().then_some(language);
            return None;
        }
        Some((block, line))
    })
}

/// Returns the fenced blocks of this language below a heading of any level, up to the next heading.
pub fn blocks(content: &str, heading: &str, language: &str) -> Vec<String> {
    let is_heading = |block: Option<&str>, line: &str| block.is_none() && line.starts_with('#');
    let mut below = false;
    let mut found: Vec<String> = Vec::new();
    let mut was = None;
    for (block, line) in fenced(content) {
        if is_heading(block, line) {
            below = line.trim_start_matches('#').trim() == heading;
        }
        if below && block == Some(language) {
            if was != block {
                found.push(String::new());
            }
            let text = found.pop().unwrap_or_default();
            found.push(text + line + "\n");
        }
        was = block;
    }
    found
}

/// Returns the text without code: a code span becomes empty backticks.
pub fn prose(content: &str) -> String {
    let lines = fenced(content).filter(|(block, _)| block.is_none()).map(|(_, line)| line);
    let text = lines.collect::<Vec<_>>().join("\n");
    text.split('`').step_by(2).collect::<Vec<_>>().join("``")
}

/// Returns the code between backticks.
pub fn spans(content: &str) -> Vec<String> {
    let lines = fenced(content).filter(|(block, _)| block.is_none()).map(|(_, line)| line);
    let text = lines.collect::<Vec<_>>().join("\n");
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Returns the targets of links: `[text](target)`, and `[text]: target` at the start of a line.
pub fn links(content: &str) -> Vec<String> {
    let text = prose(content);
    let inline = text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
    let named = text
        .lines()
        .filter(|line| line.starts_with('['))
        .filter_map(|line| Some(line.split_once("]: ")?.1));
    inline.chain(named).map(|link| link.trim().to_owned()).collect()
}

/// Returns the anchors of the headings.
pub fn slugs(content: &str) -> Vec<String> {
    let mut seen = HashMap::<String, usize>::new();
    let lines = fenced(content).filter(|(block, _)| block.is_none()).map(|(_, line)| line);
    lines
        .filter_map(|line| {
            line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#'))
        })
        .map(|heading| {
            let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || " _-".contains(*c));
            let slug = kept.collect::<String>().to_lowercase().replace(' ', "-");
            let before = seen.entry(slug.clone()).or_default();
            *before += 1;
            if *before == 1 { slug } else { format!("{slug}-{}", *before - 1) }
        })
        .collect()
}

/// A command of a `console` block, and the output that the block shows.
#[derive(Clone, Debug)]
pub struct Typed {
    /// The command in one line.
    pub command: String,
    /// The lines of the output; empty if the text shows none.
    pub prints: Vec<String>,
}

/// Returns the commands in `console` blocks, each line after `$ `, and their output.
pub fn console(content: &str) -> Vec<Typed> {
    let mut all: Vec<Typed> = Vec::new();
    let lines = fenced(content).filter(|(block, _)| *block == Some("console"));
    for line in joined(lines.map(|(_, line)| line)) {
        match (line.strip_prefix("$ "), all.last_mut()) {
            (Some(command), _) => {
                all.push(Typed { command: command.to_owned(), prints: Vec::new() });
            }
            (None, Some(last)) => last.prints.push(line),
            (None, None) => {}
        }
    }
    all
}

/// Returns the lines of all fenced blocks. A line that ends in `\` and the next one are one line.
pub fn code(content: &str) -> Vec<String> {
    joined(fenced(content).filter(|(block, _)| block.is_some()).map(|(_, line)| line))
}

/// Appends to each line that ends in `\` the next one without its indent.
fn joined<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in lines {
        let (text, more) = line.strip_suffix('\\').map_or((line, false), |text| (text, true));
        match all.last_mut() {
            Some(last) if goes_on => last.push_str(text.trim_start()),
            _ => all.push(text.to_owned()),
        }
        goes_on = more;
    }
    all
}

/// Whether the text contains Rust code that rustdoc runs as a test.
pub fn rust_is_tested(content: &str) -> bool {
    let mut opens = false;
    content.lines().filter_map(|line| line.trim_start().strip_prefix("```")).any(|language| {
        opens = !opens;
        let mut words = language.split(',');
        opens && words.next() == Some("rust") && words.all(|word| word != "ignore")
    })
}

/// Returns a line with all numbers and their units of time replaced by the same text.
pub fn shape(line: &str) -> String {
    let mut shape = String::new();
    for c in line.chars() {
        match c {
            _ if !c.is_ascii_digit() => shape.push(c),
            _ if !shape.ends_with('0') => shape.push('0'),
            _ => {}
        }
    }
    shape.replace("for 0ms", "for 0s")
}

#[test]
fn lines_that_differ_in_more_than_numbers_have_other_shapes() {
    assert_eq!(shape("a: held by 1 (token 12, for 3s)"), shape("a: held by 20 (token 7, for 5ms)"));
    assert_ne!(shape("a: held by 1 (token 12)"), shape("a: held by 1 (exclusive, token 12)"));
    assert_ne!(shape("a: held by 1"), shape("a: held by nobody"));
}

#[test]
fn wrapped_commands_and_output_are_one_line() {
    let text =
        "```console\n$ a \\\n    --b\nc: \\\n    d \\\n    e\nf\n```\n\n```text\ng \\\n  h\n```\n";
    let [Typed { command, prints }] = &console(text)[..] else { panic!("one command") };
    assert_eq!((command.as_str(), &prints[..]), ("a --b", &["c: d e".to_owned(), "f".into()][..]));
    assert_eq!(code(text), ["$ a --b", "c: d e", "f", "g h"]);
}

#[test]
fn blocks_are_those_below_their_heading() {
    let text = "# A\n```sh\na\n```\n## B\n```sh\n# b\nc\n```\nd\n```sql\ne\n```\n\n```sh\nf\n```\n# C\n```sh\ng\n```\n";
    assert_eq!(blocks(text, "B", "sh"), ["# b\nc\n", "f\n"]);
    assert_eq!(blocks(text, "B", "sql"), ["e\n"]);
    assert!(blocks(text, "D", "sh").is_empty());
}
