//! Finds names in a statement that the server would look up in the search path.
//!
//! Another user may have made an operator, a function, a type or a relation of the same name in a
//! schema of that path, and the server prefers it if it fits the arguments better.

/// A part of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Quoted,
    Text,
    Number,
    Operator(String),
    Mark(char),
}

/// These words look like functions, but are part of the grammar.
const GRAMMAR: [&str; 35] = [
    "coalesce",
    "greatest",
    "least",
    "exists",
    "extract",
    "any",
    "array",
    "values",
    "operator",
    "as",
    "key",
    "check",
    "conflict",
    "from",
    "join",
    "select",
    "and",
    "or",
    "not",
    "where",
    "when",
    "then",
    "else",
    "using",
    "on",
    "materialized",
    "with",
    "by",
    "lateral",
    "all",
    "union",
    "set",
    "offset",
    "returning",
    "limit",
];
/// These words use operators, which the server looks up by name.
const HIDDEN: [&str; 8] =
    ["in", "like", "ilike", "similar", "between", "nullif", "distinct", "natural"];
/// These types are part of the grammar.
const TYPES: [&str; 4] = ["bigint", "integer", "boolean", "interval"];
/// These types are not.
const LOOKED_UP: [&str; 9] =
    ["text", "oid", "regclass", "regrole", "timestamptz", "date", "jsonb", "int8", "int4"];

/// Returns the names that are looked up in the search path, with the words around them.
pub(crate) fn looked_up(sql: &str) -> Vec<String> {
    let tokens = tokens(sql);
    (0..tokens.len())
        .filter(|&at| is_looked_up(&tokens, at))
        .map(|at| format!("{:?}", &tokens[at.saturating_sub(3)..(at + 3).min(tokens.len())]))
        .collect()
}

fn is_looked_up(tokens: &[Token], at: usize) -> bool {
    let mark = |at: usize, mark| tokens.get(at) == Some(&Token::Mark(mark));
    let word = |at: usize| match tokens.get(at) {
        Some(Token::Word(word)) => &**word,
        _ => "",
    };
    let before = |back: usize| at.checked_sub(back);
    let word_before = |back| before(back).map_or("", word);
    let mark_before = |back, it| before(back).is_some_and(|at| mark(at, it));
    let is_qualified = mark_before(1, '.');
    let is_of_catalog = is_qualified && word_before(2) == "pg_catalog";
    match &tokens[at] {
        Token::Operator(operator) => {
            let is_named = is_of_catalog && mark_before(3, '(') && word_before(4) == "operator";
            let is_count = operator == "*" && mark_before(1, '(') && mark(at + 1, ')');
            let is_option = word_before(3) == "with" && mark_before(2, '(');
            let is_assignment = operator == "=" && (is_option || is_assigned(tokens, at));
            let is_sign = operator == "-" && tokens.get(at + 1) == Some(&Token::Number);
            !(is_named || is_count || is_assignment || is_sign)
        }
        Token::Mark(':') => {
            // Two colons are a cast.
            mark_before(1, ':')
                && !(TYPES.contains(&word(at + 1))
                    || word(at + 1) == "pg_catalog" && mark(at + 2, '.'))
        }
        Token::Word(name) => {
            let is_called = mark(at + 1, '(');
            // The columns behind an alias, or behind the name of a table.
            let has_columns =
                ["as", "exists", "into"].contains(&word_before(1)) || is_a_table(name);
            let is_relation = ["from", "join", "into", "update"].contains(&word_before(1))
                && !["epoch", "do", "for", "key"].contains(&word_before(2))
                && !["set", "lateral", "pg_catalog", "select", "rows"].contains(&&**name)
                && !mark(at + 1, '.')
                && !is_named_here(tokens, name);
            let is_collation = word_before(1) == "collate" && name != "pg_catalog";
            HIDDEN.contains(&&**name)
                || name == "case" && word(at + 1) != "when"
                || !is_qualified && LOOKED_UP.contains(&&**name)
                || is_called && !is_of_catalog && !GRAMMAR.contains(&&**name) && !has_columns
                || is_relation
                || is_collation
        }
        Token::Quoted => word_before(1) == "collate",
        _ => false,
    }
}

fn is_a_table(name: &str) -> bool {
    name.starts_with("dlock_")
}

/// Returns whether it is the name of a part of this statement (`WITH name AS`).
fn is_named_here(tokens: &[Token], name: &str) -> bool {
    let name = Token::Word(name.to_owned());
    let is_as = |at: usize| tokens.get(at) == Some(&Token::Word("as".to_owned()));
    (0..tokens.len()).any(|at| tokens[at] == name && is_as(at + 1))
}

/// Returns whether an equals sign assigns: to a setting or to a column.
fn is_assigned(tokens: &[Token], at: usize) -> bool {
    let is = |at: usize, words: &[&str]| match &tokens[at] {
        Token::Word(word) => words.contains(&&**word),
        _ => false,
    };
    let mut depth = 0_i32;
    for back in (0..at).rev() {
        match &tokens[back] {
            Token::Mark(')') => depth += 1,
            Token::Mark('(') => depth -= 1,
            _ => {}
        }
        if depth == 0 && is(back, &["where", "select", "from", "and", "or", "when", "then", "else"])
        {
            let begins = is(back, &["where", "select", "from"]) || back + 2 >= at;
            if begins {
                return false;
            }
        }
        if depth == 0 && is(back, &["set", "local"]) {
            let is_column = matches!(tokens[at - 1], Token::Word(_));
            let follows = at == back + 2
                || tokens[at - 2] == Token::Mark(',')
                || is(at - 2, &["set", "local"]);
            return is_column && follows;
        }
        if depth < 0 {
            return false;
        }
    }
    false
}

fn tokens(sql: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = sql;
    while let Some(first) = rest.chars().next() {
        let end = |is: fn(char) -> bool| rest.find(|c| !is(c)).unwrap_or(rest.len());
        let length = match first {
            _ if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            '\'' | '"' => {
                tokens.push(if first == '"' { Token::Quoted } else { Token::Text });
                rest[1..].find(first).map_or(rest.len(), |end| end + 2)
            }
            '0'..='9' | '$' => {
                tokens.push(Token::Number);
                end(|c| c.is_ascii_alphanumeric() || c == '$')
            }
            'a'..='z' | 'A'..='Z' | '_' => {
                let length = end(|c| c.is_ascii_alphanumeric() || c == '_');
                tokens.push(Token::Word(rest[..length].to_lowercase()));
                length
            }
            _ if "+-*/<>=~!@#%^&|`?".contains(first) => {
                let length = end(|c| "+-*/<>=~!@#%^&|`?".contains(c));
                tokens.push(Token::Operator(rest[..length].to_owned()));
                length
            }
            _ if first.is_whitespace() => first.len_utf8(),
            _ => {
                tokens.push(Token::Mark(first));
                first.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    tokens
}

#[test]
fn each_unqualified_name_is_found() {
    for sql in [
        "SELECT $1 || 'a'",
        "SELECT a = 1 FROM s.t",
        "SELECT f(1)",
        "SELECT s.f(1)",
        "SELECT 1 FROM t",
        "SELECT 1 FROM s.t JOIN pg_class ON true",
        "INSERT INTO dlock_lock (name) SELECT 1",
        "UPDATE s.t SET a = b + 1",
        "UPDATE s.t SET a = 1 WHERE b = 1",
        "UPDATE s.t SET a = CASE WHEN b = 1 THEN 1 END",
        "DELETE FROM dlock_lock",
        "SELECT $1::text",
        "SELECT $1::money",
        "SELECT text 'a'",
        "SELECT $1::\"char\"",
        "SELECT a COLLATE \"C\" FROM s.t",
        "SELECT 1 WHERE a IN (1)",
        "SELECT 1 WHERE a LIKE 'b'",
        "SELECT CASE a WHEN 1 THEN 2 END",
        "SELECT nullif(a, b)",
        "SELECT operator(public.+)",
        "CREATE TABLE IF NOT EXISTS s.dlock_lock (a text)",
    ] {
        assert!(!looked_up(sql).is_empty(), "{sql}");
    }
    for sql in [
        "SELECT pg_catalog.f($1::pg_catalog.text) OPERATOR(pg_catalog.||) 'a || b'",
        "WITH c AS MATERIALIZED (SELECT 1) SELECT pg_catalog.count(*) FROM c -- a || b",
        "SELECT ARRAY['a']::pg_catalog.\"char\"[]",
        "SET LOCAL role = DEFAULT; SET search_path = pg_catalog, pg_temp; SELECT 1",
        "UPDATE s.t SET a = 1, b = greatest(a, 2) WHERE a OPERATOR(pg_catalog.=) 1",
        "INSERT INTO s.dlock_lock AS d (name) SELECT w.a FROM pg_catalog.unnest($1) AS w (a) ON \
         CONFLICT (name) DO UPDATE SET name = CASE WHEN d.a OPERATOR(pg_catalog.=) 1 THEN 2 END",
        "SELECT extract(epoch FROM pg_catalog.statement_timestamp()) FROM \"s\".t",
        "SELECT 1 FROM s.t FOR NO KEY UPDATE SKIP LOCKED",
    ] {
        assert_eq!(looked_up(sql), Vec::<String>::new(), "{sql}");
    }
}
