//! Observers of a server that decides alone.

use dlock_core::Exclusion;
use dlock_testlab::zookeeper::Ensemble;

use super::{lazy, url_of};
use crate::support::{connect, run, works_fully};

/// An observer takes requests for its leader, and may hand them in late.
#[test]
fn one_voter_with_observers_is_no_single_server() {
    run(async {
        let ensemble = Ensemble::start(&lazy().with_observers()).await?;
        let clients = [connect(&url_of(&ensemble)).await?, connect(&url_of(&ensemble)).await?];
        let nodes = ensemble.nodes()[0].nodes_under("/dlock").await?;
        let epochs = nodes.iter().filter(|path| path.starts_with("/dlock/%session-")).count();
        assert_eq!(epochs, clients.len(), "{nodes:?}");
        // When the only voter is away nobody stands in for it.
        assert_eq!(clients[0].guarantees().exclusion, Exclusion::Restart);
        works_fully(&clients[0], &clients[1], "a").await
    })
}
