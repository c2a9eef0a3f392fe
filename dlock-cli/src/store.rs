//! The store of a command, and the connection to it.

use std::{
    fmt,
    io::IsTerminal,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use dlock::{ConnectOptions, Error, Locks, admin::Note, backend::BackendUrl};
use dlock_core::Backoff;

use crate::{
    failure::{Failure, code, complain},
    parse,
};

/// The longest time for the last releases to reach the store.
const CLOSING: Duration = Duration::from_secs(5);

/// The limit of the time to connect, unless `--connect-timeout` or a longer `--wait` is given.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The pauses between attempts to connect.
const PAUSES: Backoff = Backoff::between(Duration::from_millis(100), Duration::from_secs(1));

/// The variables that name the store.
pub(crate) const URL: &str = "DLOCK_URL";
pub(crate) const URL_FILE: &str = "DLOCK_URL_FILE";

/// The variable that names the runs that a command is in.
pub(crate) const NESTED: &str = "DLOCK_RUN";

/// Which store.
#[derive(Debug, Args)]
pub(crate) struct Store {
    /// The store, such as redis://localhost or sqlite:locks.db [env: DLOCK_URL]
    #[arg(long, value_name = "URL", global = true, conflicts_with = "url_file")]
    url: Option<Secret>,

    /// A file that contains the URL of the store [env: DLOCK_URL_FILE]
    ///
    /// Spaces, line ends and a byte order mark around the URL are ignored. Only the user of dlock
    /// should be able to read the file (mode 600) if the URL has a password. DLOCK_URL goes before
    /// DLOCK_URL_FILE.
    #[arg(long, value_name = "FILE", global = true)]
    url_file: Option<PathBuf>,

    /// How long to retry until the store answers [default: 10s, or the --wait of `run` if it is
    /// longer]
    ///
    /// A store that refuses connections, does not answer or is starting is retried for that long. A
    /// wrong URL, password or setting is reported at once.
    #[arg(long, value_name = "TIME", global = true, value_parser = parse::pause)]
    connect_timeout: Option<Duration>,
}

/// A URL, and where it comes from.
pub(crate) struct Source {
    url: String,
    pub(crate) file: Option<PathBuf>,
}

impl Source {
    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

impl Store {
    /// Connects.
    pub(crate) async fn connect(&self) -> Result<Locks, Failure> {
        let source = self.source()?;
        let connecting = self.try_connect(
            source.url(),
            ConnectOptions::new(),
            CONNECT_TIMEOUT,
            print_unreachable,
        );
        connecting.await?.map_err(Failure::from)
    }

    /// Connects within `limit`, unless --connect-timeout is given, with this note for the claims.
    /// Without one, the default applies.
    pub(crate) async fn connect_noted(
        &self,
        source: &Source,
        limit: Option<Duration>,
        note: Option<Note>,
        default: impl FnOnce() -> Option<Note> + Send,
        on_error: impl Fn(&Error) + Send + Sync,
    ) -> Result<Locks, Failure> {
        let url = source.url();
        let options = match note.or_else(default) {
            Some(note) => ConnectOptions::new().with_note(note)?,
            None => ConnectOptions::new(),
        };
        let limit = limit.unwrap_or_default().max(CONNECT_TIMEOUT);
        self.try_connect(url, options, limit, on_error).await?.map_err(Failure::from)
    }

    /// Connects, and retries while the store is unreachable. The error distinguishes a mistake of
    /// the caller from a fault of the store. `on_error` receives the first error that is retried.
    pub(crate) async fn try_connect(
        &self,
        url: &str,
        options: ConnectOptions,
        limit: Duration,
        on_error: impl Fn(&Error) + Send + Sync,
    ) -> Result<Result<Locks, Error>, Failure> {
        let limit = self.connect_timeout.unwrap_or(limit);
        let mut last = None;
        let connecting = async {
            let mut backoff = PAUSES;
            loop {
                match dlock::connect_with(url, options.clone()).await {
                    Err(error) if error.is_transient() => {
                        if last.is_none() {
                            on_error(&error);
                        }
                        last = Some(error);
                    }
                    done => return done,
                }
                backoff.wait().await;
            }
        };
        let connected = tokio::time::timeout(limit, connecting).await;
        match (connected, last) {
            (Ok(connected), _) => Ok(connected),
            (Err(_), Some(error)) => Ok(Err(error)),
            (Err(_), None) => {
                // The text without the password.
                let shown = url.parse::<BackendUrl>().map(|url| url.to_string());
                let doubt = match url.starts_with("sqlite:") {
                    true => "whether another program keeps the file locked",
                    false => "that it runs and that this machine can reach it",
                };
                Err(Failure::new(
                    code::UNAVAILABLE,
                    format!(
                        "{} did not answer within {}: check {doubt}, or set a longer \
                         --connect-timeout",
                        shown.as_deref().unwrap_or("the store"),
                        humantime::format_duration(limit)
                    ),
                ))
            }
        }
    }

    /// Returns the URL.
    pub(crate) fn source(&self) -> Result<Source, Failure> {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let written = |url: &str| Ok(Source { url: url.trim().to_owned(), file: None });
        match (&self.url, &self.url_file) {
            (Some(Secret(url)), _) if !url.is_empty() => return written(url),
            (_, Some(file)) => return read(file),
            _ => {}
        }
        if let Some(url) = set(URL) {
            let url = url.into_string();
            return written(
                &url.map_err(|_| Failure::misuse("DLOCK_URL is not UTF-8: set it again"))?,
            );
        }
        if let Some(file) = set(URL_FILE) {
            return read(Path::new(&file));
        }
        let nested = match set(NESTED) {
            Some(_) => {
                "; this command runs under `dlock run`, which removes DLOCK_URL: start that one \
                 with --keep-url"
            }
            None => "",
        };
        Err(Failure::misuse(format!(
            "no store is given: write --url URL or set DLOCK_URL or DLOCK_URL_FILE, for example to \
             redis://localhost or sqlite:/var/lib/locks.db?dlock.create_schema=true{nested}; known \
             schemes are {}",
            schemes()
        )))
    }
}

/// Reads a URL from a file. No error shows the contents.
fn read(file: &Path) -> Result<Source, Failure> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| {
        Failure::misuse(format!(
            "the URL can't be read from {shown} ({error}): check the path and its permissions"
        ))
    })?;
    // Some editors put a byte order mark before the text.
    let url = text.strip_prefix('\u{feff}').unwrap_or(&text).trim();
    let is = match url.lines().count() {
        0 => "is empty",
        1 => return Ok(Source { url: url.to_owned(), file: Some(file.to_owned()) }),
        _ => "has several lines",
    };
    Err(Failure::misuse(format!("{shown} {is}: write the URL of the store into it, and no more")))
}

/// Reports to a person that the store is unreachable and is retried.
pub(crate) fn print_unreachable(error: &Error) {
    if std::io::stderr().is_terminal() {
        complain(&format!("dlock: {error}; retrying"));
    }
}

/// Waits until pending requests have reached the store. If a release does not, its lock is free
/// when the lease expires.
pub(crate) async fn close(locks: &Locks) {
    let _ = locks.shutdown(CLOSING).await;
}

/// Returns the schemes that a URL can have.
fn schemes() -> String {
    let schemes = dlock::backend::registry().schemes();
    schemes.iter().map(|scheme| format!("{scheme}:")).collect::<Vec<_>>().join(", ")
}

/// A URL, which may have a password.
#[derive(Clone)]
struct Secret(String);

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
