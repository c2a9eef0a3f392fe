//! Fuzz properties: the rules for each parser, and for each string that is written into SQL, for any
//! input. Each function panics if a property does not hold.
//!
//! `proof/fuzz/` runs them for long, and the tests below run them briefly. A normal build does not
//! contain this module.

use dlock_core::{BackendUrl, Error, LockName};
#[cfg(feature = "mysql")]
pub use mysql::{log_end, mysql_names, mysql_url};
#[cfg(feature = "postgres")]
pub use postgres::{notification, postgres_literal, postgres_url};
#[cfg(feature = "sqlite")]
pub use sqlite::{sqlite_json, sqlite_url};

/// The longest text of an error, whatever input it describes, because errors go to logs.
const LONGEST_ERROR: usize = 1500;

/// The passwords in the URLs here.
const SECRET: &str = "hunter2";

/// A server's text with an error's number or code, the number first: it gets an explanation.
#[cfg(all(feature = "mysql", feature = "postgres"))]
pub fn error(data: &[u8]) {
    use crate::{mysql::error::by_number, postgres::error::by_code};

    let Ok(text) = std::str::from_utf8(data) else { return };
    let (code, said) = text.split_once(' ').unwrap_or((text, ""));
    assert!(!by_code(code, said).error.to_string().is_empty());
    let fault = by_number(code.parse().unwrap_or_default(), said);
    assert!(!fault.error.to_string().is_empty());
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use percent_encoding::percent_decode_str;

    use super::short;
    use crate::{SqliteConfig, sqlite::json::Array};

    /// A URL: an accepted one names a file exactly as it was written.
    pub fn sqlite_url(data: &[u8]) {
        let Ok(text) = std::str::from_utf8(data) else { return };
        let Ok(url) = format!("sqlite:{text}").parse() else { return };
        match SqliteConfig::from_url(&url) {
            Ok(config) => {
                let path = config.path.to_str().unwrap_or_default();
                let given = text.split('?').next().unwrap_or_default();
                let given = percent_decode_str(given.strip_prefix("//").unwrap_or(given));
                assert_eq!(given.decode_utf8().as_deref(), Ok(path));
                assert!(!path.is_empty() && path != ":memory:" && !path.contains('\0'), "{path:?}");
            }
            Err(error) => short(&error),
        }
    }

    /// Texts as a JSON array: the array contains exactly these texts.
    pub fn sqlite_json(data: &[u8]) {
        let Ok(text) = std::str::from_utf8(data) else { return };
        let texts: Vec<&str> = text.split('|').collect();
        let fill = |array| texts.iter().fold(array, |array: Array, text| array.text(text));
        let json = Array::new().array(fill).number(-7).finish();
        let mut rest = json.strip_prefix("[[").unwrap_or_else(|| panic!("{json}"));
        for (at, text) in texts.iter().enumerate() {
            let (found, behind) = read_text(rest).unwrap_or_else(|| panic!("{json}"));
            assert_eq!(found, *text);
            let mark = if at + 1 < texts.len() { "," } else { "],-7]" };
            rest = behind.strip_prefix(mark).unwrap_or_else(|| panic!("{json}"));
        }
        assert_eq!(rest, "");
    }

    /// Reads one text in quotes, by RFC 8259. Returns it, and the rest of the input.
    fn read_text(json: &str) -> Option<(String, &str)> {
        let mut chars = json.strip_prefix('"')?.chars();
        let mut text = String::new();
        loop {
            match chars.next()? {
                '"' => return Some((text, chars.as_str())),
                '\\' => match chars.next()? {
                    'u' => {
                        let (digits, rest) = chars.as_str().split_at_checked(4)?;
                        text.push(char::from_u32(u32::from_str_radix(digits, 16).ok()?)?);
                        chars = rest.chars();
                    }
                    c @ ('"' | '\\') => text.push(c),
                    _ => return None,
                },
                c if c < ' ' => return None,
                c => text.push(c),
            }
        }
    }
}

#[cfg(feature = "mysql")]
mod mysql {
    use super::{server_url, text_and_name};
    use crate::{
        MysqlConfig,
        mysql::{json, statement::end_of},
    };

    /// A URL with a password of any characters: no output shows the password, and an accepted URL
    /// obeys the bounds.
    pub fn mysql_url(data: &[u8]) {
        server_url("mysql", data, |url| {
            let config = MysqlConfig::from_url(url)?;
            assert!((1..=16).contains(&config.connections));
            Ok(format!("{config:?} {}", config.store))
        });
    }

    /// Names as a JSON array of hexadecimal digits: the array contains exactly these names.
    pub fn mysql_names(data: &[u8]) {
        let Some((_, name)) = text_and_name(data) else { return };
        let json = json::wanted([(&name, 0), (&name, 7)]);
        let (first, second) = json.split_once("],").unwrap_or_else(|| panic!("{json}"));
        for (text, begin, end) in [(first, "[[\"", "\",0"), (second, "[\"", "\",7]]")] {
            let digits = text.strip_prefix(begin).and_then(|text| text.strip_suffix(end));
            let digits = digits.unwrap_or_else(|| panic!("{json}"));
            let bytes = digits.as_bytes().chunks(2).map(|pair| {
                let pair = std::str::from_utf8(pair).unwrap_or_default();
                u8::from_str_radix(pair, 16).unwrap_or_else(|_| panic!("{json}"))
            });
            assert!(bytes.eq(name.as_str().bytes()), "{json}");
        }
    }

    /// A log, and in front of it an operation and a line feed: the log is cut behind the last line
    /// that is the operation with a time.
    pub fn log_end(data: &[u8]) {
        let Ok(text) = std::str::from_utf8(data) else { return };
        let (op, log) = text.split_once('\n').unwrap_or(("R a 1", text));
        if op.contains(';') {
            return;
        }
        let is_ours = |line: &str| {
            let time = line.strip_prefix(op).and_then(|rest| rest.strip_prefix(' '));
            let time = time.and_then(|time| time.strip_suffix(';'));
            time.is_some_and(|time| !time.is_empty() && time.bytes().all(|b| b.is_ascii_digit()))
        };
        let last = |log: &str| log.split_inclusive(';').next_back().is_some_and(is_ours);
        match end_of(log, op) {
            Some(end) => {
                assert!(last(&log[..end]));
                assert!(!log[end..].split_inclusive(';').any(is_ours), "there is a later one");
            }
            None => assert!(!log.split_inclusive(';').any(is_ours)),
        }
    }
}

#[cfg(feature = "postgres")]
mod postgres {
    use super::{server_url, text_and_name};
    use crate::{
        PostgresConfig,
        engine::Notification,
        postgres::literal::{Arg, fill},
    };

    /// A URL with a password of any characters: no output shows the password, and an accepted URL
    /// obeys the bounds.
    pub fn postgres_url(data: &[u8]) {
        server_url("postgres", data, |url| {
            let config = PostgresConfig::from_url(url)?;
            assert!((1..=16).contains(&config.connections));
            Ok(format!("{config:?} {}", config.store))
        });
    }

    /// Texts written into a statement: each is one literal there, which contains exactly this text.
    pub fn postgres_literal(data: &[u8]) {
        let Ok(text) = std::str::from_utf8(data) else { return };
        let (first, second) = text.split_once('|').unwrap_or((text, ""));
        let args = [Arg::Text(first), Arg::Texts(vec![second, first]), Arg::Number(-1)];
        let sql = fill("SELECT $1, $2, $3", &args);
        let begin = sql.strip_prefix("SELECT ").and_then(literal);
        let (one, rest) = begin.unwrap_or_else(|| panic!("{sql}"));
        let next = rest.strip_prefix(", ARRAY[").and_then(literal);
        let (two, rest) = next.unwrap_or_else(|| panic!("{sql}"));
        let next = rest.strip_prefix(',').and_then(literal);
        let (three, rest) = next.unwrap_or_else(|| panic!("{sql}"));
        assert_eq!(rest, "], (-1)");
        let kept = |text: &str| text.replace('\0', "");
        assert_eq!([one, two, three], [kept(first), kept(second), kept(first)]);
    }

    /// Reads an escape string, by "4.1.2.2. String Constants with C-Style Escapes". Returns it, and
    /// the rest of the input.
    fn literal(sql: &str) -> Option<(String, &str)> {
        let mut chars = sql.strip_prefix("E'")?.chars();
        let mut text = String::new();
        loop {
            match chars.next()? {
                '\\' => text.push(chars.next().filter(|next| *next == '\\')?),
                '\'' if chars.as_str().starts_with('\'') => {
                    chars.next();
                    text.push('\'');
                }
                '\'' => return Some((text, chars.as_str())),
                '\0' => return None,
                c => text.push(c),
            }
        }
    }

    /// A notification of a grant: an accepted one is equal to itself when it is read again.
    pub fn notification(data: &[u8]) {
        let Some((text, name)) = text_and_name(data) else { return };
        if let Some(notification) = Notification::read(text) {
            assert_eq!(Notification::read(&notification.to_string()), Some(notification.clone()));
            assert!(text.ends_with(notification.name.as_str()));
            let sent = Notification { name, ..notification };
            assert_eq!(Notification::read(&sent.to_string()), Some(sent));
        }
    }
}

/// Splits a text and the lock's name that follows its last line feed.
fn text_and_name(data: &[u8]) -> Option<(&str, LockName)> {
    let text = std::str::from_utf8(data).ok()?;
    let (text, name) = text.rsplit_once('\n').unwrap_or((text, text));
    Some((text, LockName::new(name).ok()?))
}

/// A URL of a server: it is accepted, or refused with a short error. No output shows its password,
/// whatever characters it has.
#[cfg(any(feature = "mysql", feature = "postgres"))]
fn server_url(scheme: &str, data: &[u8], read: fn(&BackendUrl) -> Result<String, Error>) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(url) = format!("{scheme}:{text}").parse()
        && let Err(error) = read(&url)
    {
        short(&error);
    }
    // The parser of URLs ignores these characters.
    if text.replace(['\t', '\n', '\r'], "").contains(SECRET) {
        return;
    }
    let mut pieces = text.splitn(3, '\n');
    let mut piece = || pieces.next().unwrap_or_default();
    let url = format!("{scheme}://user:{}{SECRET}{}@localhost/db{}", piece(), piece(), piece());
    let shown = match url.parse::<BackendUrl>() {
        Ok(url) => match read(&url) {
            Ok(read) => format!("{url} {url:?} {read}"),
            Err(error) => format!("{url} {url:?} {error} {error:?}"),
        },
        Err(error) => format!("{error} {error:?}"),
    };
    assert!(!shown.contains(SECRET), "{url} shows as {shown}");
}

/// Checks that an error is short.
fn short(error: &Error) {
    let shown = error.to_string();
    assert!(shown.len() <= LONGEST_ERROR, "{} bytes: {shown}", shown.len());
}

#[cfg(test)]
mod tests {
    use dlock_testkit::inputs::try_on;

    #[cfg(any(feature = "mysql", feature = "postgres"))]
    const URL: &[&str] = &[
        "//",
        "/",
        "?",
        "&",
        "=",
        "@",
        "#",
        ":",
        "hunte\tr2",
        "%40",
        "%2F",
        "%FF",
        "%00",
        "[::1]",
        "localhost",
        "u",
        "u:p@",
        "//u:p@localhost/db",
        "db",
        ":5432",
        ":port",
        "sslmode=",
        "disable",
        "prefer",
        "ssl-mode=",
        "DISABLED",
        "socket=",
        "host=",
        "port=",
        "password=",
        "options[a]=",
        "dlock.",
        "dlock.connections=",
        "dlock.plain=row",
        "dlock.retention=",
        "7",
        "30s",
        "\n",
        "charset=utf8",
        "sslcert=x",
        "hostaddr=",
    ];

    #[cfg(feature = "mysql")]
    #[test]
    fn mysql_urls() {
        try_on(URL, super::mysql_url);
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn postgres_urls() {
        try_on(URL, super::postgres_url);
    }

    #[cfg(feature = "sqlite")]
    #[test]
    fn sqlite_urls() {
        let pieces =
            &["//", "/", "a", ".db", ":memory:", "%00", "%3F", "%FF", "?", "dlock.", "@", "é"];
        try_on(pieces, super::sqlite_url);
    }

    #[cfg(feature = "sqlite")]
    #[test]
    fn sqlite_arguments() {
        try_on(&["\"", "\\", "|", "\n", "\0", "u0000", "[", ",", "🔒", "a"], super::sqlite_json);
    }

    #[cfg(feature = "mysql")]
    #[test]
    fn mysql_arguments() {
        try_on(&["\"", "\\", "é", "\n", "🔒", "a"], super::mysql_names);
    }

    #[cfg(feature = "mysql")]
    #[test]
    fn ends_of_logs() {
        try_on(
            &["R a 1", "R a 11", "K b 1 9", " ", "5", "17", ";", "R a 1 5;", "\n", " nb%20 "],
            super::log_end,
        );
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn postgres_arguments() {
        try_on(&["'", "\\", "$1", "--", "|", "\n", "\0", "E'", "a", "🔒"], super::postgres_literal);
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn notifications() {
        let pieces =
            &["00000000000000000000000000000007", " 9", " 2", " 5 8 a", "+", " ", "\n", "é"];
        try_on(pieces, super::notification);
    }

    #[cfg(all(feature = "mysql", feature = "postgres"))]
    #[test]
    fn errors() {
        let pieces =
            &["08P01", "0A000", "57014", " ", "1045", "1213", "startup parameter", "65536"];
        try_on(pieces, super::error);
    }

    /// Their password has a bare `@` and `?`: the part between the two looks like a host.
    #[cfg(all(feature = "mysql", feature = "postgres"))]
    #[test]
    fn a_part_of_a_password_that_looks_like_a_host_is_hidden() {
        for data in ["a@\nport=?b\n", "a@\n?b\n", "a@\n:1?sslmode=verify-full&b\n"] {
            super::postgres_url(data.as_bytes());
            super::mysql_url(data.as_bytes());
        }
    }
}
