//! Servers that keep sessions to themselves.

use dlock_core::ErrorKind;
use dlock_testlab::zookeeper::Ensemble;

use super::{lazy, url_of};
use crate::support::{connect, refused, run, says, works_fully};

#[test]
fn servers_that_keep_sessions_local_are_named() {
    run(async {
        let local = lazy().with_config("localSessionsEnabled=true");
        let ensemble = Ensemble::start(&local).await?;
        for address in ensemble.addresses() {
            let error = refused(&format!("zk://{address}?dlock.session_timeout=15s")).await?;
            says(&error, ErrorKind::Unsupported, "localSessionsUpgradingEnabled=true");
        }
        drop(ensemble);
        let upgrading = local.with_config("localSessionsUpgradingEnabled=true");
        let ensemble = Ensemble::start(&upgrading).await?;
        let (mut clients, url) = (Vec::new(), url_of(&ensemble));
        for _ in 0..2 {
            clients.push(connect(&url).await?);
        }
        works_fully(&clients[0], &clients[1], "a").await
    })
}
