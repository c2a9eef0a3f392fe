//! The arguments of a statement, written into its text, for poolers that can't keep prepared
//! statements.
//!
//! Here data becomes part of SQL, so a mistake would allow injection. An argument can only be a
//! number in parentheses, a text in an escape string, or an array of these.

use std::fmt::Write as _;

/// An argument of a statement.
#[derive(Clone, Debug)]
pub(crate) enum Arg<'a> {
    Text(&'a str),
    Number(i64),
    Texts(Vec<&'a str>),
    Numbers(Vec<i64>),
}

/// Returns the statement without its comments, and with its arguments in the places of `$1` to
/// `$9`. Text between quotes, such as the name of a schema, and the arguments stay as they are.
pub(crate) fn fill(sql: &str, args: &[Arg<'_>]) -> String {
    let mut text = String::with_capacity(sql.len());
    let mut quote = None;
    let mut rest = sql;
    while let Some(char) = rest.chars().next() {
        let after = &rest[char.len_utf8()..];
        if quote.is_none() && rest.starts_with("--") {
            rest = rest.find('\n').map_or("", |end| &rest[end..]);
            continue;
        }
        if let ('$', None, Some((arg, behind))) = (char, quote, argument(after, args)) {
            push(&mut text, arg);
            rest = behind;
            continue;
        }
        quote = match (quote, char) {
            // A doubled quote closes and opens.
            (Some(open), _) if open == char => None,
            (None, '"' | '\'') => Some(char),
            (quote, _) => quote,
        };
        text.push(char);
        rest = after;
    }
    text
}

/// Returns the argument whose number the text begins with, and what follows the number.
fn argument<'a, 't>(text: &'t str, args: &'a [Arg<'a>]) -> Option<(&'a Arg<'a>, &'t str)> {
    let number = text.chars().next()?.to_digit(10)?;
    let at = usize::try_from(number).ok()?.checked_sub(1)?;
    Some((args.get(at)?, &text[1..]))
}

fn push(out: &mut String, arg: &Arg<'_>) {
    match arg {
        Arg::Text(text) => push_text(out, text),
        Arg::Number(number) => push_number(out, *number),
        Arg::Texts(texts) => push_all(out, texts, |out, text| push_text(out, text)),
        Arg::Numbers(numbers) => push_all(out, numbers, |out, number| push_number(out, *number)),
    }
}

/// Appends an array. The statement states its type.
fn push_all<T>(out: &mut String, items: &[T], push: impl Fn(&mut String, &T)) {
    out.push_str("ARRAY[");
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        push(out, item);
    }
    out.push(']');
}

/// Appends an escape string, which means the same for each value of the server's
/// `standard_conforming_strings`. A text can't contain a zero byte.
fn push_text(out: &mut String, text: &str) {
    out.push_str("E'");
    for char in text.chars().filter(|&char| char != '\0') {
        match char {
            '\'' => out.push_str("''"),
            '\\' => out.push_str("\\\\"),
            _ => out.push(char),
        }
    }
    out.push('\'');
}

/// Appends a number in parentheses. So a cast behind it also applies to its sign, and a minus sign
/// before it can't turn it into a comment.
fn push_number(out: &mut String, number: i64) {
    // Writing to a String does not fail.
    let _ = write!(out, "({number})");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::queries;

    #[test]
    fn texts_are_escaped() {
        for (text, literal) in [
            ("", "E''"),
            ("a", "E'a'"),
            ("it's", "E'it''s'"),
            (r"a\b\'", r"E'a\\b\\'''"),
            ("$1 -- ü\n;", "E'$1 -- ü\n;'"),
            ("a\0b", "E'ab'"),
        ] {
            assert_eq!(fill("$1", &[Arg::Text(text)]).trim_end_matches('\n'), literal);
        }
    }

    #[test]
    fn numbers_and_arrays_are_written_out() {
        let args = [
            Arg::Number(i64::MIN),
            Arg::Texts(vec!["a", "b'"]),
            Arg::Numbers(vec![1, -2]),
            Arg::Texts(Vec::new()),
        ];
        assert_eq!(
            fill("f(2-$1::bigint, $2, $3::bigint[], $4::text[])", &args),
            "f(2-(-9223372036854775808)::bigint, ARRAY[E'a',E'b'''], ARRAY[(1),(-2)]::bigint[], \
             ARRAY[]::text[])"
        );
    }

    #[test]
    fn comments_are_removed_and_arguments_are_not_scanned() {
        let args = [Arg::Text("$2"), Arg::Text("-- $1")];
        assert_eq!(fill("-- $1 is\n-- $2\n$2 $1 $3 $\n", &args), "\n\nE'-- $1' E'$2' $3 $\n");
    }

    #[test]
    fn the_quoted_name_of_a_schema_is_no_argument() {
        let args = [Arg::Number(7)];
        assert_eq!(fill("FROM \"a$1\".t WHERE b = $1", &args), "FROM \"a$1\".t WHERE b = (7)");
        assert_eq!(fill("'\"a$1b$1\".t' $1", &args), "'\"a$1b$1\".t' (7)");
        assert_eq!(fill("$1 COLLATE \"C\" $1", &args), "(7) COLLATE \"C\" (7)");
        let name = "\"a\n--b'$1\"\"$1\".t";
        assert_eq!(fill(&format!("{name} $1 {name}"), &args), format!("{name} (7) {name}"));
    }

    #[test]
    fn no_statement_has_comments_or_more_than_nine_arguments() {
        for sql in [
            queries::APPLY_ONE,
            queries::APPLY_MANY,
            queries::READ,
            queries::PAGE,
            queries::DELETE,
            queries::NOTIFY,
            queries::SERVER,
            queries::TABLES,
        ] {
            let args = vec![Arg::Number(7); 9];
            let text = fill(sql, &args);
            assert!(!text.contains("--") && !text.contains('$'), "{text}");
        }
    }
}
