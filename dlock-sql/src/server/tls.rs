//! Whether a connection is encrypted. The URL has to set it.
//!
//! By default the drivers encrypt if the server offers it, and continue in clear text if not. So an
//! attacker between the two decides. dlock requires a choice instead, unless the server is on this
//! machine.

use dlock_core::{ConfigIssue, Error};

/// The TLS choice of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tls {
    /// Clear text.
    Off,
    /// TLS, as the driver has read it.
    On,
    /// Either: the server decides.
    Open,
}

impl Tls {
    /// Checks the choice for a server at `host`. Returns true for TLS. `key` is the option's name
    /// in the URL, with the values for clear text and for TLS.
    pub(crate) fn checked(self, host: &str, key: [&str; 3]) -> Result<bool, Error> {
        let [name, off, on] = key;
        match self {
            Self::Off => Ok(false),
            Self::Open if is_local(host) => Ok(false),
            Self::Open => Err(Error::config(
                ConfigIssue::OptionValue,
                // Without the host: in a URL with a bare @ or ? in its password, it may be a part
                // of the password.
                format!(
                    "the URL must set the TLS mode for a server on another machine: add \
                     {name}={on}, or {name}={off} for clear text, which shows the password to the \
                     network"
                ),
            )),
            Self::On if cfg!(feature = "tls") => {
                provide_cryptography();
                Ok(true)
            }
            Self::On => Err(Error::config(
                ConfigIssue::MissingFeature,
                format!(
                    "{name} asks for TLS, which needs the Cargo feature \"tls\": enable it for \
                     dlock in Cargo.toml"
                ),
            )),
        }
    }
}

/// Installs the cryptography provider of the process, because the driver panics if the program
/// contains two, for example one of another driver. A choice of the application stays.
fn provide_cryptography() {
    #[cfg(feature = "tls")]
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Another thread may have been faster.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}

/// Returns whether traffic to this host stays on this machine.
fn is_local(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    host == "localhost" || host.starts_with('/') || address.is_ok_and(|at| at.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [&str; 3] = ["sslmode", "disable", "verify-full"];

    #[test]
    fn only_a_local_server_needs_no_tls_choice() {
        for host in ["localhost", "127.0.0.1", "[::1]", "::1", "/run/postgresql"] {
            assert!(!Tls::Open.checked(host, KEY).unwrap(), "{host}");
        }
        for host in ["db", "10.0.0.1", "localhost.example.org"] {
            let error = Tls::Open.checked(host, KEY).unwrap_err().to_string();
            assert!(error.contains("sslmode=disable"), "{error}");
            // In a mistyped URL it may be a part of the password.
            assert!(!error.contains(host), "{error}");
            assert!(!Tls::Off.checked(host, KEY).unwrap());
        }
    }

    #[test]
    fn tls_needs_its_feature() {
        let error = Tls::On.checked("db", KEY).err();
        assert_eq!(error.is_none(), cfg!(feature = "tls"), "{error:?}");
    }
}
