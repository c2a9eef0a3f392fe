//! The store of a command, and the connection to it.

use std::{fmt, time::Duration};

use clap::Args;
use dlock::{ConnectOptions, Locks, admin::Note, backend::BackendUrl};

use crate::{
    failure::{Failure, code},
    parse,
};

/// The longest time for the last releases to reach the store.
const CLOSING: Duration = Duration::from_secs(5);

/// Which store.
#[derive(Debug, Args)]
pub(crate) struct Store {
    /// The store, such as redis://localhost or sqlite:locks.db
    #[arg(long, value_name = "URL", env = "DLOCK_URL", hide_env_values = true)]
    url: Option<Secret>,

    /// How long to wait for a connection to the store
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse::pause)]
    connect_timeout: Duration,
}

impl Store {
    /// Connects.
    pub(crate) async fn connect(&self) -> Result<Locks, Failure> {
        self.try_connect(self.url()?, ConnectOptions::new()).await?.map_err(Failure::from)
    }

    /// Connects, with this note for the claims. Without one, the note of the URL applies, or else
    /// the default.
    pub(crate) async fn connect_noted(
        &self,
        note: Option<Note>,
        default: impl FnOnce() -> Option<Note>,
    ) -> Result<Locks, Failure> {
        let url = self.url()?;
        let in_url = || url.parse().is_ok_and(|mut url: BackendUrl| url.take("note").is_some());
        let options = match note.or_else(|| if in_url() { None } else { default() }) {
            Some(note) => ConnectOptions::new().with_note(note)?,
            None => ConnectOptions::new(),
        };
        self.try_connect(url, options).await?.map_err(Failure::from)
    }

    /// Connects. The error distinguishes a mistake of the caller from a fault of the store.
    pub(crate) async fn try_connect(
        &self,
        url: &str,
        options: ConnectOptions,
    ) -> Result<Result<Locks, dlock::Error>, Failure> {
        let connecting = dlock::connect_with(url, options);
        match tokio::time::timeout(self.connect_timeout, connecting).await {
            Ok(connected) => Ok(connected),
            Err(_) => {
                // The text without the password.
                let shown = url.parse::<BackendUrl>().map(|url| url.to_string());
                Err(Failure::new(
                    code::UNAVAILABLE,
                    format!(
                        "{} did not answer within {}: check that it runs and that this machine \
                         can reach it, or set a longer --connect-timeout",
                        shown.as_deref().unwrap_or("the store"),
                        humantime::format_duration(self.connect_timeout)
                    ),
                ))
            }
        }
    }

    /// Returns the URL.
    pub(crate) fn url(&self) -> Result<&str, Failure> {
        match &self.url {
            Some(Secret(url)) if !url.is_empty() => Ok(url),
            _ => Err(Failure::misuse(format!(
                "no store is given: write --url URL or set DLOCK_URL, for example to \
                 redis://localhost or sqlite:/var/lib/locks.db?dlock.create_schema=true; known \
                 schemes are {}",
                schemes()
            ))),
        }
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
