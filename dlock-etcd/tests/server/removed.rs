//! A member that is removed from the cluster while a client uses it.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use dlock_core::{DynBackend, ErrorKind};
use dlock_testlab::{
    Door, Proxy, Verdict,
    etcd::{Ensemble, Options},
};
use futures_util::{
    FutureExt,
    future::{join_all, try_join_all},
};
use tokio::time::sleep;

use crate::support::{connect, exclusive, free, renew, run, take, works};

/// The number of callers that acquire and release locks meanwhile.
const CALLERS: usize = 16;

#[test]
fn locks_outlive_the_removal_of_a_follower() {
    run(async {
        let servers = Ensemble::start(&Options::new()).await?;
        removal(&servers, servers.followers().await?[0]).await
    });
}

#[test]
fn locks_outlive_the_removal_of_the_leader() {
    run(async {
        let servers = Ensemble::start(&Options::new()).await?;
        removal(&servers, servers.leader().await?).await
    });
}

async fn removal(servers: &Ensemble, removed: usize) -> Verdict {
    let mut addresses = vec![servers.addresses()[removed].clone()];
    let mut others = Vec::new();
    for (_, address) in servers.addresses().iter().enumerate().filter(|(at, _)| *at != removed) {
        let proxy = Proxy::start(address).await?;
        proxy.door(Door::Closed).await?;
        addresses.push(proxy.address());
        others.push(proxy);
    }
    let url = format!("etcd://{}?dlock.session_timeout=24s", addresses.join(","));
    let client = connect(&url).await?;
    let held: Vec<_> = (0..8).map(|at| exclusive(&format!("held{at}"))).collect();
    try_join_all(held.iter().map(|held| take(&client, held))).await?;
    let mut losses = client.events().ok_or("it reports no losses")?;
    for other in &others {
        other.door(Door::Open).await?;
    }

    let is_removed = AtomicBool::new(false);
    let removing = async {
        let removed = servers.remove(removed).await;
        is_removed.store(true, Ordering::SeqCst);
        removed
    };
    let calling = join_all((0..CALLERS).map(|caller| calls(&client, caller, &is_removed)));
    let (removing, calling) = tokio::join!(removing, calling);
    removing?;
    calling.into_iter().collect::<Verdict>()?;
    assert!(others.iter().any(|other| other.connections() > 0), "no other member is used");

    works(&client, "another").await?;
    for held in &held {
        renew(&client, held).await?;
        free(&client, held).await?;
    }
    assert!(losses.recv().now_or_never().is_none(), "a lock was lost");
    Ok(())
}

/// Acquires and releases locks until the member has ended, and once more. A request may fail.
async fn calls(client: &DynBackend, caller: usize, is_removed: &AtomicBool) -> Verdict {
    for number in 0.. {
        let was_removed = is_removed.load(Ordering::SeqCst);
        let request = exclusive(&format!("{caller}-{number}"));
        let acquired = client.acquire(&request).await;
        let released = client.release(&request.as_claim()).await;
        for error in [acquired.err(), released.err()].into_iter().flatten() {
            if error.kind() != ErrorKind::Unavailable {
                return Err(error.into());
            }
            sleep(Duration::from_millis(5)).await;
        }
        if was_removed {
            break;
        }
    }
    Ok(())
}
