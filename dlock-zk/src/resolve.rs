//! The addresses behind the host names of a URL.
//!
//! The driver tries one entry of its list after the other, each for its connection timeout. For a
//! name, it connects to the first address, and tries the next one only if that refuses. So an
//! address that swallows packets would hide the others, and a session over a name that stands for
//! all members would stay with one of them. A name with several addresses is therefore listed with
//! each address. The name itself stays in the list: the driver resolves it at each reconnect, so
//! addresses that are new are found. The next session resolves all names again.
//!
//! With TLS only the names are listed, since the driver checks that a certificate is for the entry
//! that it has connected to. An address comes from a name server, which is not trusted to say which
//! certificates are right.

use std::{collections::BTreeSet, time::Duration};

use futures_util::future::join_all;
use tokio::{net::lookup_host, time::timeout};

/// How long a name server may take. Then the driver resolves the name itself.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns the entries for the driver's list, each as `host:port`.
pub(crate) async fn entries(hosts: &[String]) -> Vec<String> {
    let entries = hosts.iter().map(async |host| {
        let found = timeout(LOOKUP_TIMEOUT, lookup_host(host)).await;
        let addresses: BTreeSet<_> = found.into_iter().flatten().flatten().collect();
        let mut entries = vec![host.clone()];
        if addresses.len() > 1 {
            entries.extend(addresses.iter().map(ToString::to_string));
        }
        entries
    });
    join_all(entries).await.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn addresses_and_unknown_names_stay_as_they_are() {
        let hosts = ["127.0.0.1:2181", "[::1]:2181", "zookeeper.invalid:2181"];
        let hosts = hosts.map(str::to_owned);
        assert_eq!(entries(&hosts).await, hosts);
    }
}
