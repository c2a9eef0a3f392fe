//! The two forms of an IPv6 address: with brackets in a URL, and without them everywhere else.
//!
//! The drivers use the host of a URL as it is, so they would look up `[::1]` as a name, and compare
//! it with the names of a certificate.

use std::net::Ipv6Addr;

/// Returns the host without the brackets of an IPv6 address.
pub(crate) fn bare(host: &str) -> &str {
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    inner.unwrap_or(host)
}

/// Returns the host as it is written in a URL.
pub(crate) fn shown(host: &str) -> String {
    let host = bare(host);
    match host.parse::<Ipv6Addr>() {
        Ok(_) => format!("[{host}]"),
        Err(_) => host.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_ipv6_address_has_brackets_in_a_url() {
        for (host, is_bare, is_shown) in [
            ("[::1]", "::1", "[::1]"),
            ("fd00::2", "fd00::2", "[fd00::2]"),
            ("127.0.0.1", "127.0.0.1", "127.0.0.1"),
            ("db.example.org", "db.example.org", "db.example.org"),
            ("/run/postgresql", "/run/postgresql", "/run/postgresql"),
        ] {
            assert_eq!((bare(host), &*shown(host)), (is_bare, is_shown));
        }
    }
}
