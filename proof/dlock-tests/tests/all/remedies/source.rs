//! Rust source as code and literals, far enough to find what is passed to a function.

use std::{iter::Peekable, str::Chars};

/// Source without comments. In the code a literal stands as its number between two quotes.
#[derive(Debug, Default)]
pub(super) struct Source {
    code: String,
    texts: Vec<String>,
}

impl Source {
    pub(super) fn read(text: &str) -> Self {
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
    pub(super) fn texts(&self) -> &[String] {
        &self.texts
    }

    /// The literals within the arguments of each call.
    pub(super) fn passed(&self, call: &str) -> Vec<String> {
        self.calls(call).flat_map(|arguments| self.within(arguments)).collect()
    }

    /// The last argument of each call, where it is a literal.
    pub(super) fn last(&self, call: &str) -> Vec<String> {
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
