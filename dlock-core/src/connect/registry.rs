//! Connects the backend of a URL.

use std::{fmt, future::Future, pin::Pin};

use super::suggest;
use crate::{BackendUrl, ConfigIssue, DynBackend, Error, vocabulary::clock};

/// The future of a connection.
pub type Connecting = Pin<Box<dyn Future<Output = Result<DynBackend, Error>> + Send>>;

/// Connects one backend by URL. Each backend crate exports one for each of its backends.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Factory {
    /// The backend's name, for messages.
    pub name: &'static str,
    /// The schemes of its URLs, in lower case.
    pub schemes: &'static [&'static str],
    /// The `dlock.*` options that it takes out of the URL, without the prefix.
    pub options: &'static [&'static str],
    /// Connects. It must take each of its options with [`BackendUrl::take`], and must check the URL
    /// before any I/O.
    pub connect: fn(BackendUrl) -> Connecting,
}

impl Factory {
    /// Creates a factory from a backend's name, its schemes, its options and its connect function.
    pub const fn new(
        name: &'static str,
        schemes: &'static [&'static str],
        options: &'static [&'static str],
        connect: fn(BackendUrl) -> Connecting,
    ) -> Self {
        Self { name, schemes, options, connect }
    }
}

impl fmt::Debug for Factory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Factory")
            .field("name", &self.name)
            .field("schemes", &self.schemes)
            .finish_non_exhaustive()
    }
}

/// The backends that a program can connect to: a plain value, without global state.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    factories: Vec<Factory>,
    missing: Vec<(&'static str, &'static str)>,
}

impl Registry {
    /// Creates an empty registry.
    pub const fn new() -> Self {
        Self { factories: Vec::new(), missing: Vec::new() }
    }

    /// Adds this backend. It replaces a backend with the same scheme.
    #[must_use]
    pub fn with(mut self, factory: Factory) -> Self {
        self.factories.insert(0, factory);
        self
    }

    /// Records that this scheme exists but needs the Cargo feature `feature`, for the message.
    #[must_use]
    pub fn with_missing(mut self, scheme: &'static str, feature: &'static str) -> Self {
        self.missing.push((scheme, feature));
        self
    }

    /// Returns the schemes of the registered backends.
    pub fn schemes(&self) -> Vec<&'static str> {
        let mut schemes: Vec<_> = self.factories.iter().flat_map(|f| f.schemes).copied().collect();
        schemes.sort_unstable();
        schemes.dedup();
        schemes
    }

    /// Returns the factory for this URL.
    ///
    /// # Errors
    /// `Config(MissingFeature)` for a backend that is not compiled in, `Config(UnknownScheme)` for
    /// another scheme. Both name the remedy; the second also names the scheme that was probably
    /// intended.
    pub fn factory(&self, url: &BackendUrl) -> Result<&Factory, Error> {
        let scheme = url.scheme();
        if let Some(factory) = self.factories.iter().find(|f| f.schemes.contains(&scheme)) {
            // A host may have the name of its store: redis:6379.
            let port = suggest::port(url.address());
            let meant = suggest::scheme_of_port(port);
            return match meant.is_some_and(|meant| factory.schemes.contains(&meant)) {
                true => Err(no_scheme(scheme, port)),
                false => Ok(factory),
            };
        }
        if let Some((_, feature)) = self.missing.iter().find(|(missing, _)| *missing == scheme) {
            return Err(Error::config(
                ConfigIssue::MissingFeature,
                format!(
                    "the backend for {scheme}: is not compiled in: add the feature \"{feature}\" to \
                     dlock in Cargo.toml"
                ),
            ));
        }
        if suggest::is_host(scheme, url.address()) {
            return Err(no_scheme(scheme, suggest::port(url.address())));
        }
        let list = |schemes: Vec<&str>| schemes.join(":, ") + ":";
        let mut missing: Vec<_> = self.missing.iter().map(|(scheme, _)| *scheme).collect();
        missing.sort_unstable();
        let missing = match missing.is_empty() {
            true => String::new(),
            false => format!(", and with their features {}", list(missing)),
        };
        let all = self.schemes().into_iter().chain(self.missing.iter().map(|(scheme, _)| *scheme));
        let hint = match suggest::scheme(scheme, all) {
            Some(meant) => format!("; did you mean {meant}:?"),
            None => String::new(),
        };
        Err(Error::config(
            ConfigIssue::UnknownScheme,
            format!(
                "no store is known for \"{:.40}:\"{hint}; known are {}{missing}; check the spelling",
                url.shown_scheme(),
                list(self.schemes())
            ),
        ))
    }

    /// Connects to the backend of this URL. `shared` are the `dlock.*` options that the caller
    /// takes out of the URL, for the message about unknown options.
    ///
    /// # Errors
    /// As [`factory`](Self::factory), `Config(UnknownOption)`, and the errors of the backend.
    pub async fn connect(&self, url: BackendUrl, shared: &[&str]) -> Result<DynBackend, Error> {
        let factory = self.factory(&url)?;
        let mut rest = url.clone();
        for option in factory.options {
            rest.take(option);
        }
        let known: Vec<&str> = shared.iter().chain(factory.options).copied().collect();
        rest.finish(&known)?;
        match (factory.connect)(url).await {
            // Under paused time, timeouts fire at once, so a store seems not to answer.
            Err(error) if error.is_transient() && clock::is_paused() => {
                Err(clock::paused().with_source(error))
            }
            connected => connected,
        }
    }
}

/// Returns the error for a host and its port without the store's scheme before them.
fn no_scheme(host: &str, port: &str) -> Error {
    Error::config(
        ConfigIssue::UnknownScheme,
        format!(
            "the URL has no scheme, and begins with the host {host:.80}: {}",
            suggest::before_a_host(port)
        ),
    )
}

#[cfg(test)]
mod paused_time {
    use super::*;
    use crate::ErrorKind;

    #[tokio::test]
    async fn a_store_that_fails_in_paused_time_says_that_it_is_paused() {
        let away = Factory::new("away", &["away"], &[], |_| {
            Box::pin(async { Err(Error::new(ErrorKind::Unavailable, "no answer")) })
        });
        let registry = Registry::new().with(away);
        let fails = async || registry.connect("away:".parse().unwrap(), &[]).await.unwrap_err();
        assert_eq!(fails().await.kind(), ErrorKind::Unavailable);
        tokio::time::pause();
        let error = fails().await;
        assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Runtime));
        assert!(error.to_string().contains("Memory::with_clock"), "{error}");
        assert!(std::error::Error::source(&error).is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorKind, Memory};

    fn registry() -> Registry {
        Registry::new().with(Memory::FACTORY).with_missing("redis", "redis")
    }

    async fn refused(text: &str) -> Error {
        registry().connect(text.parse().unwrap(), &["lease"]).await.unwrap_err()
    }

    #[tokio::test]
    async fn unknown_missing_and_bad_option_are_three_errors() {
        let unknown = refused("etcd://x").await;
        assert_eq!(unknown.kind(), ErrorKind::Config(ConfigIssue::UnknownScheme));
        let known = "known are memory:, and with their features redis:; check";
        assert!(unknown.to_string().contains(known), "{unknown}");

        let missing = refused("redis://user:hunter2@x").await;
        assert_eq!(missing.kind(), ErrorKind::Config(ConfigIssue::MissingFeature));
        assert!(missing.to_string().contains("feature \"redis\""), "{missing}");
        assert!(!missing.to_string().contains("hunter2"));

        let option = refused("memory:?dlock.nope=1").await;
        assert_eq!(option.kind(), ErrorKind::Config(ConfigIssue::UnknownOption));
        assert!(option.to_string().contains("dlock.lease"), "{option}");
    }

    mod suggestions {
        use super::*;

        fn redis() -> Registry {
            registry()
                .with_missing("rediss", "redis")
                .with_missing("redis+sentinel", "redis")
                .with_missing("postgres", "postgres")
                .with_missing("zk", "zk")
                .with_missing("etcd", "etcd")
        }

        fn unknown(text: &str) -> String {
            let url = match text.parse::<BackendUrl>() {
                Ok(url) => url,
                Err(error) => return error.to_string(),
            };
            let error = redis().factory(&url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::UnknownScheme), "{text}");
            error.to_string()
        }

        #[test]
        fn a_misspelt_scheme_is_refused_with_the_right_one() {
            for (text, meant) in [
                ("reddis://h", "redis:"),
                ("redsi://h", "redis:"),
                ("reids://h:6379/0", "redis:"),
                ("Redis+Sentinels://h/m", "redis+sentinel:"),
                ("redis-sentinel://h/m", "redis+sentinel:"),
                ("sentinel://h/m", "redis+sentinel:"),
                ("valkey://h", "redis:"),
                ("valkeys://h", "rediss:"),
                ("zookeeper://h", "zk:"),
                ("ectd://h", "etcd:"),
                ("postgress://h", "postgres:"),
                ("pg://h", "postgres:"),
                ("memmory:", "memory:"),
            ] {
                let message = unknown(text);
                assert!(message.contains(&format!("did you mean {meant}?")), "{text}: {message}");
            }
            for text in ["consul://h", "http://h", "x:"] {
                assert!(!unknown(text).contains("did you mean"), "{text}");
            }
        }

        #[test]
        fn a_host_without_a_scheme_gets_the_scheme_of_its_port() {
            for (text, meant) in [
                ("localhost:6379", "redis://"),
                ("LocalHost:6379/0?dlock.lease=5s", "redis://"),
                ("cache-1.example.com:6379", "redis://"),
                ("127.0.0.1:6379", "redis://"),
                ("[::1]:6379/3", "redis://"),
                ("my_cache:6379", "redis://"),
                ("s1:26379", "redis+sentinel://"),
                ("db:5432/locks", "postgres://"),
                ("db:3306", "mysql://"),
                ("zoo:2181/shop", "zk://"),
                ("e1:2379", "etcd://"),
            ] {
                let message = unknown(text);
                let meant = format!("did you mean {meant}HOST:");
                assert!(
                    message.contains("no scheme") && message.contains(&meant),
                    "{text}: {message}"
                );
            }
            let message = unknown("localhost:7000");
            assert!(
                message.contains("no scheme") && message.contains("redis://HOST:"),
                "{message}"
            );
        }

        #[test]
        fn no_hint_shows_a_password() {
            for text in [
                "hunter2",
                "user:hunter2@h:6379",
                "127.0.0.1:hunter2",
                "reddis://u:hunter2@h",
                "hunter2:x@h",
                "hunter2:6379/x@h",
            ] {
                assert!(!unknown(text).contains("hunter2"), "{text}: {}", unknown(text));
            }
        }
    }

    #[tokio::test]
    async fn a_known_scheme_connects() {
        let backend = registry().connect("memory:".parse().unwrap(), &[]).await.unwrap();
        assert!(backend.store().starts_with("memory"));
    }
}
