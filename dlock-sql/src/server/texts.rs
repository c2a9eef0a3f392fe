//! Statements with a schema in front of dlock's tables.
//!
//! A setting of the session resolves a name without a schema. An application may change that
//! setting on a connection of its pool, another client of a pooler on a shared one, and an
//! administrator for all new ones. So the schema is found once, when the store is opened, and is
//! part of each statement then.

use std::{collections::HashMap, sync::Arc};

use sqlx::{AssertSqlSafe, SqlSafeStr as _, SqlStr};

/// The schemas of the tables, and the statements with them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Texts {
    /// Pairs of a text in a statement and its replacement.
    pairs: Arc<[(String, String)]>,
    /// By address and length of the statement as it was written, which is a constant.
    known: HashMap<(usize, usize), Arc<str>>,
}

impl Texts {
    /// Statements in which each of these tables has its schema, quoted if necessary, wherever the
    /// table is read, written or created, or PostgreSQL looks it up. Columns with the table's name before
    /// them stay unchanged.
    pub(crate) fn new<'a>(homes: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut pairs = Vec::new();
        for (table, schema) in homes {
            for before in ["FROM ", "INTO ", "JOIN ", "UPDATE ", "EXISTS "] {
                let written = format!("{before}{schema}.{table} ");
                pairs.push((format!("{before}{table} "), written));
            }
            let quoted = schema.replace('\'', "''");
            let looked_up = format!("to_regclass('{quoted}.{table}')");
            pairs.push((format!("to_regclass('{table}')"), looked_up));
        }
        Self { pairs: pairs.into(), known: HashMap::new() }
    }

    /// Returns whether there is no replacement, so that the session's search path decides.
    #[cfg(feature = "postgres")]
    pub(crate) fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Adds one more replacement.
    #[cfg(any(feature = "mysql", test))]
    pub(crate) fn with(mut self, text: &str, instead: String) -> Self {
        let more = [(text.to_owned(), instead)];
        self.pairs = self.pairs.iter().cloned().chain(more).collect();
        self
    }

    /// Returns the statement.
    pub(crate) fn of(&mut self, sql: &'static str) -> SqlStr {
        if self.pairs.is_empty() {
            return SqlStr::from_static(sql);
        }
        let written = || replace_once(sql, &self.pairs).into();
        // It contains only texts of this crate, and quoted names.
        let text = self.known.entry((sql.as_ptr().addr(), sql.len())).or_insert_with(written);
        AssertSqlSafe(text.clone()).into_sql_str()
    }
}

/// Replaces each text that a pair names, in one pass. The replacements are not searched, so the name
/// of a schema is never changed, whatever it contains.
fn replace_once(sql: &str, pairs: &[(String, String)]) -> String {
    let mut written = String::with_capacity(2 * sql.len());
    let mut rest = sql;
    while let Some(first) = rest.chars().next() {
        let found = pairs.iter().find_map(|(text, to)| Some((to, rest.strip_prefix(&**text)?)));
        rest = if let Some((to, after)) = found {
            written.push_str(to);
            after
        } else {
            written.push(first);
            &rest[first.len_utf8()..]
        };
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_in_a_statement_gets_its_schema() {
        let mut texts = Texts::new([("dlock_lock", "\"it's\""), ("dlock_schema", "b")]);
        for (sql, text) in [
            ("SELECT 1", "SELECT 1"),
            ("SELECT 2 FROM dlock_schema WHERE 1", "SELECT 2 FROM b.dlock_schema WHERE 1"),
            ("FROM x JOIN dlock_lock AS d ON d.a", "FROM x JOIN \"it's\".dlock_lock AS d ON d.a"),
            ("UPDATE dlock_lock SET dlock_lock.a", "UPDATE \"it's\".dlock_lock SET dlock_lock.a"),
            ("INTO dlock_lock (name)", "INTO \"it's\".dlock_lock (name)"),
            ("to_regclass('dlock_lock')", "to_regclass('\"it''s\".dlock_lock')"),
        ] {
            for _ in 0..2 {
                assert_eq!(texts.of(sql).as_str(), text);
            }
        }
        assert_eq!(texts.known.len(), 6);
    }

    /// Ignores comments and columns.
    #[test]
    fn no_statement_names_a_table_without_its_schema() {
        let tables = ["dlock_lock", "dlock_schema", "dlock_plain", "dlock_advisory"];
        let mut texts = Texts::new(tables.map(|table| (table, "s")));
        for sql in statements() {
            let text = texts.of(sql);
            let lines = text.as_str().lines().filter(|line| !line.trim_start().starts_with("--"));
            let text = lines.collect::<Vec<_>>().join("\n");
            for table in tables {
                for (at, _) in text.match_indices(table) {
                    let is_column = text[at + table.len()..].starts_with('.');
                    let is_told = text[..at].ends_with(", '");
                    assert!(text[..at].ends_with("s.") || is_column || is_told, "{text}");
                }
            }
        }
    }

    /// Whatever the schema is called, it is written as it is, and nothing else changes.
    #[test]
    fn hostile_names_of_schemas_are_written_as_they_are() {
        const NEUTRAL: &str = "neutral_schema";
        let tables = ["dlock_lock", "dlock_schema", "dlock_plain", "dlock_advisory"];
        let texts = |schema: &str| {
            Texts::new(tables.map(|table| (table, schema))).with("DATABASE()", "X'00'".to_owned())
        };
        let mut neutral = texts(NEUTRAL);
        for name in [
            "`DATABASE()`",
            "\"DATABASE()\"",
            "`FROM dlock_lock `",
            "\"INTO dlock_schema to_regclass('dlock_lock')\"",
            "\"it's\"",
            "\"$1$2$9\"",
            "`?`",
            "\"{lock}{statement}\"",
            "\"a\n-- b\"",
            "\"\"\"\"",
            "````",
            "\"\u{fc}\u{1f512}\u{202e}\"",
        ] {
            let mut hostile = texts(name);
            for sql in statements() {
                let expected = neutral
                    .of(sql)
                    .as_str()
                    .split(&format!("to_regclass('{NEUTRAL}."))
                    .map(|part| part.replace(NEUTRAL, name))
                    .collect::<Vec<_>>()
                    .join(&format!("to_regclass('{}.", name.replace('\'', "''")));
                assert_eq!(hostile.of(sql).as_str(), expected, "{name}");
            }
        }
    }

    fn statements() -> Vec<&'static str> {
        let mut all = Vec::new();
        #[cfg(feature = "mysql")]
        {
            all.extend(crate::mysql::STATEMENTS);
            all.extend(crate::mysql::PLAIN_STATEMENTS.all());
        }
        #[cfg(feature = "postgres")]
        {
            all.extend(crate::postgres::STATEMENTS);
            all.extend(crate::postgres::PLAIN_STATEMENTS.all());
        }
        all
    }

    #[test]
    fn a_statement_without_a_schema_is_unchanged() {
        assert_eq!(Texts::default().of("FROM dlock_lock AS d").as_str(), "FROM dlock_lock AS d");
    }
}
