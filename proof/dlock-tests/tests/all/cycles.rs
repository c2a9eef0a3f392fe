//! Circles of files that import each other, in all crates.
//!
//! It reads `use` declarations and paths that begin with `crate`, `self` or `super`, and resolves
//! re-exported names to the file that defines them. Imports of tests alone do not count, and
//! neither does a re-export by itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use dlock_tests::{crates, root};

/// The files of a crate by their modules, such as `hold::books`; the root is the empty string.
#[derive(Default)]
struct Files(BTreeMap<String, File>);

#[derive(Default)]
struct File {
    /// Each imported name, with its path from the crate's root, and whether it is re-exported.
    uses: Vec<Use>,
    /// The paths in the code.
    paths: BTreeSet<String>,
    /// The code without imports.
    code: String,
}

struct Use {
    name: String,
    path: String,
    exported: bool,
}

impl Files {
    fn of_crate(src: &Path) -> Self {
        let mut files = Self::default();
        files.read(src, "");
        files
    }

    fn read(&mut self, folder: &Path, module: &str) {
        for entry in fs::read_dir(folder).expect("a folder of sources") {
            let path = entry.expect("an entry").path();
            let stem = path.file_stem().and_then(|stem| stem.to_str()).expect("a name").to_owned();
            let inner = join(module, &stem);
            // A program beside a library is a separate crate.
            let program = stem == "main" && folder.join("lib.rs").exists();
            if path.is_dir() {
                self.read(&path, &inner);
            } else if path.extension().is_some_and(|end| end == "rs") && !program {
                let module = match &*stem {
                    "lib" | "main" | "mod" => module.to_owned(),
                    _ => inner,
                };
                let text = fs::read_to_string(&path).expect("a text");
                self.0.insert(module.clone(), File::new(&module, &text));
            }
        }
    }

    /// Returns the file that defines this path, possibly through re-exports of other files.
    fn home(&self, path: &str) -> Option<&str> {
        let mut path = path.to_owned();
        for _ in 0..8 {
            let (module, rest) = self.split(&path)?;
            let name = rest.split("::").next().unwrap_or_default();
            let mut passed_on = self.0[module].uses.iter().filter(|one| one.exported);
            match passed_on.find(|one| !name.is_empty() && one.name == name) {
                Some(one) if self.split(&one.path).is_some() => path.clone_from(&one.path),
                _ => return Some(module),
            }
        }
        None
    }

    /// Returns the longest module that the path begins with, and the rest of the path.
    fn split<'a>(&self, path: &'a str) -> Option<(&str, &'a str)> {
        let mut at = path.len();
        loop {
            if let Some((module, _)) = self.0.get_key_value(&path[..at]) {
                return Some((module, path[at..].trim_start_matches("::")));
            }
            at = path[..at].rfind("::").unwrap_or_default();
        }
    }

    /// The files that each file imports.
    fn imports(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let mut all = BTreeMap::new();
        for (module, file) in &self.0 {
            let used = file.uses.iter().filter(|one| !one.exported || file.mentions(&one.name));
            let paths = used.map(|one| &one.path).chain(&file.paths);
            let mut homes: BTreeSet<_> = paths.filter_map(|path| self.home(path)).collect();
            homes.remove(&**module);
            all.insert(&**module, homes);
        }
        all
    }

    /// The circles: groups of files each of which leads to all others of its group.
    fn circles(&self) -> Vec<Vec<&str>> {
        let imports = self.imports();
        let reached: BTreeMap<_, _> =
            imports.keys().map(|from| (*from, reach(&imports, from))).collect();
        let mut circles = Vec::new();
        let mut seen = BTreeSet::new();
        for from in imports.keys() {
            let circle: Vec<_> =
                reached[from].iter().copied().filter(|to| reached[to].contains(from)).collect();
            if circle.len() > 1 && seen.insert(circle[0]) {
                circles.push(circle);
            }
        }
        circles
    }
}

fn reach<'a>(imports: &BTreeMap<&'a str, BTreeSet<&'a str>>, from: &'a str) -> BTreeSet<&'a str> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(module) = next.pop() {
        next.extend(imports[module].iter().filter(|to| reached.insert(**to)));
    }
    reached
}

fn join(module: &str, name: &str) -> String {
    if module.is_empty() { name.to_owned() } else { format!("{module}::{name}") }
}

impl File {
    fn new(module: &str, text: &str) -> Self {
        let mut file = Self::default();
        let text = without_tests(text);
        let mut rest = &*text;
        while let Some((before, exported, tree, after)) = next_use(rest) {
            file.code.push_str(before);
            file.add(module, exported, "", tree);
            rest = after;
        }
        file.code.push_str(rest);
        for start in ["crate::", "super::", "self::"] {
            for (at, _) in file.code.match_indices(start) {
                let before = file.code[..at].chars().next_back();
                let inner = before.is_some_and(|c| c.is_alphanumeric() || "_:$".contains(c));
                if inner || file.code[..at].ends_with("(in ") {
                    continue;
                }
                let end =
                    file.code[at..].find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
                let path = &file.code[at..end.map_or(file.code.len(), |end| at + end)];
                file.paths.extend(absolute(module, path.trim_end_matches(':')));
            }
        }
        file
    }

    /// Adds the names of a tree such as `a::{b, c::d}`.
    fn add(&mut self, module: &str, exported: bool, before: &str, tree: &str) {
        for part in parts(tree) {
            if let Some((start, inner)) = part.split_once('{') {
                let inner = inner.trim_end().strip_suffix('}').expect("a closed brace");
                self.add(module, exported, &format!("{before}{}", start.trim()), inner);
                continue;
            }
            let (path, name) = match part.split_once(" as ") {
                Some((path, name)) => (path.trim(), Some(name.trim())),
                None => (part, None),
            };
            let path = format!("{before}{path}");
            let path = path.strip_suffix("::self").unwrap_or(&path);
            let name = name.unwrap_or_else(|| path.rsplit("::").next().unwrap_or(path));
            // Otherwise the path begins with a module inside this one, or with another crate, which
            // then counts as an item of this module.
            let path = absolute(module, path).unwrap_or_else(|| join(module, path));
            self.uses.push(Use { name: name.to_owned(), path, exported });
        }
    }

    fn mentions(&self, name: &str) -> bool {
        let ends = |c: Option<char>| !c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        self.code.match_indices(name).any(|(at, _)| {
            ends(self.code[..at].chars().next_back())
                && ends(self.code[at + name.len()..].chars().next())
        })
    }
}

/// The path from the crate's root of one that is written in this module.
fn absolute(module: &str, path: &str) -> Option<String> {
    let mut inner: Vec<&str> = module.split("::").filter(|part| !part.is_empty()).collect();
    let mut rest = path;
    if let Some(after) = rest.strip_prefix("crate::") {
        return Some(after.to_owned());
    }
    let mut relative = false;
    loop {
        if let Some(after) = rest.strip_prefix("self::") {
            rest = after;
        } else if let Some(after) = rest.strip_prefix("super::") {
            inner.pop();
            rest = after;
        } else {
            break;
        }
        relative = true;
    }
    relative.then(|| join(&inner.join("::"), rest))
}

/// The parts of a list, with whole braces.
fn parts(tree: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in tree.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(tree[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(tree[start..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}

/// Returns the next declaration: the text before it, whether it is a re-export, its tree, and the
/// text after it.
fn next_use(text: &str) -> Option<(&str, bool, &str, &str)> {
    let mut from = 0;
    loop {
        let at = from + text[from..].find("use ")?;
        let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
        let before = text[line..at].trim();
        let is_use = before.is_empty() || (before.starts_with("pub") && !before.contains('='));
        if is_use && let Some(end) = text[at..].find(';') {
            let tree = &text[at + 4..at + end];
            // In a string, it may be an ordinary word.
            if tree.chars().all(|c| c.is_alphanumeric() || "_:{}, *\n".contains(c)) {
                return Some((&text[..line], !before.is_empty(), tree, &text[at + end + 1..]));
            }
        }
        from = at + 4;
    }
}

/// Returns the code without comments, up to the first test module.
fn without_tests(text: &str) -> String {
    let only_tests = "#[cfg(test)]\nmod ";
    let end = text.match_indices(only_tests).map(|(at, _)| at).find(|at| {
        let declared = text[at + only_tests.len()..].lines().next();
        declared.is_some_and(|line| line.ends_with('{'))
    });
    let lines = text[..end.unwrap_or(text.len())].lines();
    let code = lines.filter(|line| !line.trim_start().starts_with("//"));
    code.map(|line| format!("{}\n", line.split(" // ").next().unwrap_or(line))).collect()
}

fn of_texts(texts: &[(&str, &str)]) -> Files {
    let files = texts.iter().map(|(at, text)| ((*at).to_owned(), File::new(at, text)));
    Files(files.collect())
}

fn source(of: &str) -> Files {
    let folder = crates().remove(of).unwrap_or_else(|| root().to_owned());
    Files::of_crate(&folder.join("src"))
}

/// Pairs that may import each other: an error names a lock, and a name that can't be is an error; the
/// primitives and their model.
const PAIRS: [[&str; 2]; 2] =
    [["vocabulary::error", "vocabulary::name"], ["sync", "sync::modelled"]];

#[test]
fn core_has_no_import_cycle() {
    let core = source("dlock-core");
    assert!(core.0.len() > 60, "{} files were found", core.0.len());
    let circles: Vec<_> = core
        .circles()
        .into_iter()
        .filter(|circle| !PAIRS.iter().any(|pair| pair == &circle[..]))
        .collect();
    assert!(circles.is_empty(), "{circles:#?}");
}

#[test]
fn no_crate_has_a_large_import_cycle() {
    let with_sources = crates().into_iter().filter(|(_, folder)| folder.join("src").exists());
    let names: Vec<_> = with_sources.map(|(name, _)| name).chain(["dlock".to_owned()]).collect();
    assert!(names.len() > 10, "{names:?}");
    for of in names {
        let files = source(&of);
        let large: Vec<_> = files.circles().into_iter().filter(|circle| circle.len() > 2).collect();
        assert!(large.is_empty(), "{of}: {large:#?}");
    }
}

#[test]
fn cycle_through_the_root_is_seen() {
    let files = of_texts(&[
        ("", "pub use high::{Guard, inner::Deep as Low};"),
        ("high", "pub(crate) use inner::Deep;\nuse crate::base::Hold;\npub struct Guard;"),
        ("high::inner", "pub struct Deep;"),
        ("base", "use std::fmt;\nuse crate::{\n    Guard,\n    Low,\n};"),
    ]);
    assert_eq!(files.circles(), [["base", "high"]]);
    assert!(files.imports()["base"].contains("high::inner"));
}

#[test]
fn paths_count_and_tests_comments_and_re_exports_do_not() {
    let files = of_texts(&[
        ("a", "mod b;\npub(crate) use b::Low;\nfn f() { crate::c::g(); }"),
        ("a::b", "use super::*;"),
        ("c", "// crate::a\n#[cfg(test)]\nmod tests {\n    use crate::a::f;\n}"),
        ("d", "fn f() { super::c::g(self::e::F) }"),
        ("d::e", "use super::f;"),
    ]);
    assert_eq!(files.circles(), [["d", "d::e"]]);
    assert_eq!(files.imports()["a"].iter().collect::<Vec<_>>(), [&"c"]);
    // A re-export that the file also uses itself counts.
    let own =
        of_texts(&[("a", "pub(crate) use b::Low;\nstruct A(Low);"), ("a::b", "use super::A;")]);
    assert_eq!(own.circles(), [["a", "a::b"]]);
}
