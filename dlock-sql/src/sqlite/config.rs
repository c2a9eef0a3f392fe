//! The configuration of a SQLite store.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use dlock_core::{BackendUrl, ConfigIssue, Error};
use percent_encoding::percent_decode_str;

/// The configuration of a [`Sqlite`](super::Sqlite) store.
///
/// ```
/// use dlock_sql::SqliteConfig;
/// let config = SqliteConfig::new("/var/lib/app/locks.db").with_create_schema(true);
/// ```
///
/// dlock can't use an application's pool: an open transaction of the application would block all
/// other writers, and dlock's connections need other settings than an application's. dlock can use
/// the application's file (`SqliteConfig::new(options.get_filename())`, after
/// [`SCHEMA`](Self::SCHEMA) was run on it), but then every transaction on it delays the locks.
///
/// The file must have only one name, since SQLite derives the name of its log from it. A file with
/// a second hard link is refused, and on Linux also a file that is itself a mount point. Apart from
/// this SQLite, nothing in the process may open the file: closing any descriptor of it releases the
/// process's locks on it (POSIX).
#[derive(Clone, Debug)]
pub struct SqliteConfig {
    pub(crate) path: PathBuf,
    pub(super) create_schema: bool,
    pub(super) busy_timeout: Duration,
    pub(super) retention: Duration,
}

impl SqliteConfig {
    /// The `dlock.*` options of a URL.
    pub(super) const OPTIONS: &'static [&'static str] = &["create_schema"];

    /// The statements that create dlock's tables, to run them by hand: `schema.sql` of this crate.
    /// Running them again changes nothing.
    pub const SCHEMA: &'static str = super::queries::SCHEMA;

    /// Uses the file at `path`, which must have dlock's tables.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            create_schema: false,
            busy_timeout: Duration::from_secs(5),
            retention: Duration::from_secs(24 * 60 * 60),
        }
    }

    /// Sets whether dlock creates the file and the tables if they are missing. Off by default.
    ///
    /// A file with the tables of another program is still refused. To keep locks in such a file,
    /// run [`SCHEMA`](Self::SCHEMA) on it.
    #[must_use]
    pub const fn with_create_schema(mut self, create_schema: bool) -> Self {
        self.create_schema = create_schema;
        self
    }

    /// Sets how long an operation is retried while another program locks the file; 5 s by default.
    #[must_use]
    pub const fn with_busy_timeout(mut self, busy_timeout: Duration) -> Self {
        self.busy_timeout = busy_timeout;
        self
    }

    /// Sets how long the row of an unused lock is kept; a day by default. While the row exists, the
    /// fencing tokens of the lock grow even if this machine's clock is set back.
    #[must_use]
    pub const fn with_retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// Reads `sqlite:locks.db`, `sqlite://locks.db`, `sqlite:/dir/locks.db` or
    /// `sqlite:///dir/locks.db`, with the option `dlock.create_schema`. A `%` in
    /// the path starts a percent-encoded byte, as in every URL.
    ///
    /// # Errors
    /// `Config(Url)`, `Config(OptionValue)`, or `Config(UnknownOption)` for an option of another
    /// SQLite driver.
    pub fn from_url(url: &BackendUrl) -> Result<Self, Error> {
        let mut url = url.clone();
        let create_schema = url.take_bool("create_schema")?.unwrap_or(false);
        let address = url.address();
        let (path, query) = address.split_once('?').unwrap_or((address, ""));
        if let Some(option) = query.split('&').find(|option| !option.is_empty()) {
            let key = url.shown_option(option.split('=').next().unwrap_or_default());
            return Err(Error::config(
                ConfigIssue::UnknownOption,
                format!(
                    "sqlite: has no option {key:.80}; use dlock.create_schema or \
                     dlock's common options, since the URL does not set how the file is opened"
                ),
            ));
        }
        let login = path.split_once(':').map(|(_, rest)| percent_decode_str(rest));
        if login.is_some_and(|rest| rest.decode_utf8_lossy().contains('@')) {
            // It looks like a user and a password, which messages would show as a path.
            return Err(Error::config(
                ConfigIssue::Url,
                "sqlite: names a file, and no server with a user and a password: write \
                 sqlite:/dir/locks.db, and a : in the path as %3A",
            ));
        }
        let path = percent_decode_str(path.strip_prefix("//").unwrap_or(path));
        let path = path.decode_utf8().map_err(|error| {
            Error::config(
                ConfigIssue::Url,
                "the path in a sqlite: URL is not UTF-8: percent-encode it as UTF-8",
            )
            .with_source(error)
        })?;
        check_path(Path::new(&*path))?;
        Ok(Self::new(&*path).with_create_schema(create_schema))
    }
}

/// Refuses a path that can't be a file.
pub(super) fn check_path(path: &Path) -> Result<(), Error> {
    if path.as_os_str().is_empty() {
        return Err(Error::config(
            ConfigIssue::Url,
            "sqlite: names no file: write sqlite:/dir/locks.db",
        ));
    }
    if path.as_os_str().as_encoded_bytes().contains(&0) {
        return Err(Error::config(
            ConfigIssue::Url,
            "a file name can't contain a zero byte (%00 in a URL): remove it",
        ));
    }
    if path == Path::new(":memory:") {
        return Err(Error::config(
            ConfigIssue::Url,
            "no other process can see a SQLite database in memory: use memory: for locks within a \
             process, or a file",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use dlock_core::ErrorKind;

    use super::*;

    fn read(url: &str) -> Result<SqliteConfig, Error> {
        SqliteConfig::from_url(&url.parse().unwrap())
    }

    #[test]
    fn every_form_of_the_url_names_the_file() {
        for (url, path) in [
            ("sqlite:locks.db", "locks.db"),
            ("sqlite://locks.db", "locks.db"),
            ("sqlite:/a/locks.db", "/a/locks.db"),
            ("sqlite:///a/locks.db", "/a/locks.db"),
            ("sqlite:a%20b%3f.db", "a b?.db"),
            ("sqlite:file:x", "file:x"),
        ] {
            let config = read(url).unwrap();
            assert_eq!(config.path, Path::new(path), "{url}");
            assert!(!config.create_schema);
        }
        assert!(read("sqlite:x?dlock.create_schema=true").unwrap().create_schema);
    }

    #[test]
    fn a_wrong_path_or_option_is_refused_with_a_remedy() {
        for (url, issue, says) in [
            ("sqlite::memory:", ConfigIssue::Url, "use memory:"),
            ("sqlite://:memory:", ConfigIssue::Url, "use memory:"),
            ("sqlite:", ConfigIssue::Url, "sqlite:/dir/locks.db"),
            ("sqlite://", ConfigIssue::Url, "sqlite:/dir/locks.db"),
            ("sqlite:%ff", ConfigIssue::Url, "UTF-8"),
            ("sqlite://user:password@host/db", ConfigIssue::Url, "names a file"),
            ("sqlite:a%00b", ConfigIssue::Url, "zero byte"),
            ("sqlite:x?mode=memory", ConfigIssue::UnknownOption, "mode"),
            ("sqlite:x?cache=shared", ConfigIssue::UnknownOption, "dlock.create_schema"),
            ("sqlite:x?dlock.create_schema=yes", ConfigIssue::OptionValue, "true or false"),
        ] {
            let error = read(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config(issue), "{url}");
            assert!(error.to_string().contains(says), "{url}: {error}");
        }
    }
}
