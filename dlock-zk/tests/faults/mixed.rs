//! Faults of all kinds of holders, connections and servers.

use std::time::Duration;

use dlock_soak::{Running, Storm};
use dlock_testlab::{
    Proxy, Stop, Verdict,
    zookeeper::{Ensemble, ZooKeeperServer},
};
use tokio::time::sleep;

use crate::{
    cleanup,
    network::disturb,
    settings::{load, options, url},
};

pub(crate) async fn all_at_once() -> Verdict {
    let server = ZooKeeperServer::start(&options()).await?;
    let proxy = Proxy::start(&server.address()).await?;
    let mut load = load("all").start(&url(&proxy.address())).await?;
    let mut storm = Storm::begin("all");
    while storm.next(&load, 80).await {
        match rand::random_range(0..12) {
            0..5 => disturb_holders(&mut load).await?,
            5..7 => proxy.cut(),
            7..9 => disturb(&proxy).await?,
            9..11 => {
                server.pause()?;
                sleep(Duration::from_millis(rand::random_range(50..800))).await;
                server.resume()?;
            }
            _ => server.restart().await?,
        }
    }
    let report = load.finish().await?;
    storm.says(&report)?.check()?;
    cleanup::nothing(&server).await
}

pub(crate) async fn all_at_once_on_three() -> Verdict {
    let servers = Ensemble::start(&options()).await?;
    let mut proxies = Vec::new();
    for address in servers.addresses() {
        proxies.push(Proxy::start(&address).await?);
    }
    let hosts: Vec<_> = proxies.iter().map(Proxy::address).collect();
    let mut load = load("both").start(&url(&hosts.join(","))).await?;
    let mut storm = Storm::begin("both");
    while storm.next(&load, 150).await {
        let node = rand::random_range(0..proxies.len());
        match rand::random_range(0..10) {
            0..4 => disturb_holders(&mut load).await?,
            4..6 => proxies[node].cut(),
            6 => disturb(&proxies[node]).await?,
            _ => disturb_one(&servers, node).await?,
        }
    }
    servers.until_well().await?;
    let report = load.finish().await?;
    storm.says(&report)?.check()?;
    cleanup::nothing(&servers.nodes()[0]).await
}

async fn disturb_holders(load: &mut Running) -> Verdict {
    match rand::random() {
        true => load.kill_one().await,
        false => load.stop_one(Duration::from_millis(rand::random_range(50..1500))).await,
    }
}

/// Harm to one of the servers while others may still recover.
async fn disturb_one(servers: &Ensemble, node: usize) -> Result<(), Stop> {
    let time = Duration::from_millis(rand::random_range(50..1500));
    let one = &servers.nodes()[node];
    match rand::random_range(0..3) {
        0 => {
            one.kill();
            sleep(time).await;
            one.restart().await
        }
        1 => {
            one.pause()?;
            sleep(time).await;
            one.resume()
        }
        _ => {
            servers.isolate(node);
            sleep(time).await;
            servers.heal(node);
            Ok(())
        }
    }
}
