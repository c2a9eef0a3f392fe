//! Names with a prefix, page by page.
//!
//! Names are compared byte for byte, so names with one prefix are next to each other. They are read
//! as a range of the table's key, without a pattern, so nothing has to be escaped.

use dlock_core::{Error, LockName};

/// The number of rows that one statement reads.
pub(crate) const PAGE: u32 = 256;

/// A character that sorts behind every name.
const LAST: char = char::MAX;

/// The names from the first one, inclusive, to the second, exclusive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) from: String,
    pub(crate) end: String,
}

impl Range {
    /// Returns the names with this prefix, or `None` for a text that no name begins with.
    pub(crate) fn of(prefix: &str) -> Option<Self> {
        let end = match LockName::can_begin_with(prefix) {
            true => successor(prefix),
            false => return None,
        };
        // Longer than any name.
        let all = || LAST.to_string().repeat(LockName::MAX_BYTES / LAST.len_utf8() + 1);
        Some(Self { from: prefix.to_owned(), end: end.unwrap_or_else(all) })
    }
}

/// Returns the first text that sorts behind all texts with this prefix. The order of bytes is also
/// that of characters.
fn successor(prefix: &str) -> Option<String> {
    let mut text = prefix.to_owned();
    while let Some(last) = text.pop() {
        // A range of `char` skips the numbers that are no characters.
        if let Some(next) = (last..=LAST).nth(1) {
            text.push(next);
            return Some(text);
        }
    }
    None
}

/// A name of a page, and whether it is held or waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) is_used: bool,
}

/// Returns the names that begin with `prefix` and are held or waited for, at most `limit`. `page`
/// reads the first [`PAGE`] of a range.
pub(crate) async fn list<F>(
    prefix: &str,
    limit: usize,
    page: impl Fn(Range) -> F,
) -> Result<Vec<LockName>, Error>
where
    F: Future<Output = Result<Vec<Listed>, Error>>,
{
    let mut names = Vec::new();
    let Some(mut range) = Range::of(prefix) else { return Ok(names) };
    // The last name of a page is the first of the next one, and is skipped there.
    let mut known: Option<String> = None;
    while names.len() < limit {
        let rows = page(range.clone()).await?;
        let is_last = rows.len() < usize::try_from(PAGE).unwrap_or(usize::MAX);
        let last = rows.last().map(|row| row.name.clone());
        let used = rows.into_iter().filter(|row| row.is_used && known.as_ref() != Some(&row.name));
        // A row of another program may have an invalid name.
        names.extend(used.filter_map(|row| LockName::new(&row.name).ok()));
        match last {
            Some(last) if !is_last => {
                range.from.clone_from(&last);
                known = Some(last);
            }
            _ => break,
        }
    }
    names.truncate(limit);
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_ends_right_behind_its_names() {
        for (prefix, end) in
            [("a", "b"), ("a%", "a&"), ("\u{d7ff}", "\u{e000}"), ("a\u{10ffff}", "b")]
        {
            let range = Range::of(prefix).unwrap();
            assert_eq!((&*range.from, &*range.end), (prefix, end));
        }
        for prefix in ["", "\u{10ffff}"] {
            let longest = "\u{10ffff}".repeat(LockName::MAX_BYTES / 4);
            assert!(Range::of(prefix).unwrap().end > longest, "{prefix:?}");
        }
        assert_eq!(Range::of("a\0"), None);
    }

    #[test]
    fn a_range_contains_exactly_the_names_with_its_prefix() {
        let letters = ["a", "b", "%", "_", "\\", "~", "é", "\u{d7ff}", "\u{e000}", "\u{10ffff}"];
        let mut texts = vec![String::new()];
        for at in 0..111 {
            texts.extend(letters.map(|letter| format!("{}{letter}", texts[at])));
        }
        for prefix in &texts {
            let range = Range::of(prefix).unwrap();
            for name in &texts {
                let is_in = *name >= range.from && *name < range.end;
                assert_eq!(is_in, name.starts_with(prefix.as_str()), "{prefix:?} {name:?}");
            }
        }
    }

    #[tokio::test]
    async fn pages_are_joined_and_free_locks_are_left_out() {
        let all: Vec<String> = (0..1000).map(|n| format!("a{n:04}")).collect();
        let page = |range: Range| {
            let rows = all.iter().filter(|name| **name >= range.from && **name < range.end);
            let of = |name: &String| Listed { name: name.clone(), is_used: name.ends_with('7') };
            let rows: Vec<_> = rows.take(PAGE as usize).map(of).collect();
            async move { Ok(rows) }
        };
        let listed = async |prefix, limit| list(prefix, limit, page).await.unwrap();
        assert_eq!(listed("", 5000).await.len(), 100);
        assert_eq!(listed("a", 70).await.len(), 70);
        assert_eq!(listed("a000", 70).await, [LockName::new("a0007").unwrap()]);
        assert!(listed("a", 0).await.is_empty() && listed("b", 9).await.is_empty());
    }
}
