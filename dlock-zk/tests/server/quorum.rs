//! The guarantees of ensembles, and a server that has lost the majority.

use std::time::Duration;

use dlock_core::{
    DynBackend, Error, ErrorKind, Exclusion, Fairness, Fencing, OrphanRelease, Permits, Scope,
    WakeUp,
};
use dlock_testlab::{
    Stop, Verdict,
    zookeeper::{Ensemble, Mode, Options, ZooKeeperServer},
};

use crate::support::{
    connect, exclusive, fails, lazy, refused, run, says, start, until, until_it_works, url, url_of,
    works, works_fully,
};

const UNAVAILABLE: ErrorKind = ErrorKind::Unavailable;

fn all_but_the_exclusion(client: &DynBackend) {
    let guarantees = client.guarantees();
    assert_eq!(guarantees.fencing, Fencing::Durable);
    assert_eq!(guarantees.orphan_release, OrphanRelease::SessionEnd);
    assert_eq!(guarantees.fairness, Fairness::Fifo);
    assert_eq!(guarantees.wake_up, WakeUp::Push);
    assert_eq!(guarantees.scope, Scope::Network);
    assert_eq!(guarantees.permits, Permits::Counted);
}

#[test]
fn one_server_promises_to_outlive_a_restart() {
    run(async {
        let (server, client) = start().await?;
        assert_eq!(client.guarantees().exclusion, Exclusion::Restart);
        all_but_the_exclusion(&client);
        // Several addresses of one server are still one server.
        let twice = url(&server).replace("?", &format!(",localhost:{}?", server.port()));
        assert_eq!(connect(&twice).await?.guarantees().exclusion, Exclusion::Restart);
        Ok(())
    })
}

#[test]
fn an_ensemble_promises_failover_also_through_one_address() {
    run(async {
        let ensemble = Ensemble::start(&Options::new()).await?;
        for hosts in [ensemble.connect_string(), ensemble.addresses()[1].clone()] {
            let client = connect(&format!("zk://{hosts}?dlock.session_timeout=15s")).await?;
            assert_eq!(client.guarantees().exclusion, Exclusion::Failover);
            all_but_the_exclusion(&client);
            works(&client, "a").await?;
        }
        Ok(())
    })
}

/// Waits until the last server serves only clients that accept a read-only server.
async fn until_read_only(ensemble: &Ensemble, last: usize) -> Verdict {
    until("it is read-only", async || Ok(ensemble.roles().await[last] == Some(Mode::ReadOnly)))
        .await
}

/// Returns whether the error names the cause, or says that the server is unreachable: a busy server
/// may answer too late.
fn is_reported(error: &Error) -> Result<bool, Stop> {
    says(error, UNAVAILABLE, "");
    Ok(error.to_string().contains("majority"))
}

#[test]
fn a_read_only_server_is_reported_until_the_majority_returns() {
    run(async {
        // Long enough that busy servers keep their connections to each other.
        let options = Options::new()
            .with_sync_limit(Duration::from_secs(10))
            .with_property("readonlymode.enabled", "true");
        let ensemble = Ensemble::start(&options).await?;
        let url = |hosts: &str| format!("zk://{hosts}?dlock.session_timeout=6s");
        let last = ensemble.followers().await?.pop().ok_or("nobody follows")?;
        let only = url(&ensemble.addresses()[last]);
        let all = url(&ensemble.connect_string());
        let clients = [connect(&only).await?, connect(&all).await?];
        for client in &clients {
            works(client, "a").await?;
        }
        let others = ensemble.nodes().iter().enumerate().filter(|(node, _)| *node != last);
        others.for_each(|(_, node): (_, &ZooKeeperServer)| node.kill());
        until_read_only(&ensemble, last).await?;
        for url in [&only, &all] {
            until("a client that connects gets the error", async || {
                is_reported(&refused(url).await?)
            })
            .await?;
        }
        let until_reported = async |client: &DynBackend| -> Verdict {
            let request = exclusive("a");
            until("a client gets the error", async || is_reported(&fails(client, &request).await?))
                .await
        };
        for client in &clients {
            until_reported(client).await?;
            let state = client.inspect(&exclusive("a").name).await;
            assert_eq!(state.err().ok_or("it is answered")?.kind(), UNAVAILABLE);
        }
        // Longer than the sessions last: by then, the clients know that their sessions have ended.
        tokio::time::sleep(Duration::from_secs(9)).await;
        for client in &clients {
            until_reported(client).await?;
        }

        ensemble.restart().await?;
        ensemble.until_well().await?;
        for client in &clients {
            until_it_works(client).await?;
        }
        works_fully(&clients[0], &clients[1], "a").await
    })
}

/// An observer accepts requests for its leader, and may forward them late.
#[test]
fn one_voter_with_observers_is_no_single_server() {
    run(async {
        let ensemble = Ensemble::start(&lazy().with_observers()).await?;
        let clients = [connect(&url_of(&ensemble)).await?, connect(&url_of(&ensemble)).await?];
        let nodes = ensemble.nodes()[0].nodes_under("/dlock").await?;
        let epochs = nodes.iter().filter(|path| path.starts_with("/dlock/%session-")).count();
        assert_eq!(epochs, clients.len(), "{nodes:?}");
        // While the only voter is unreachable, no other server takes over.
        assert_eq!(clients[0].guarantees().exclusion, Exclusion::Restart);
        works_fully(&clients[0], &clients[1], "a").await
    })
}

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
