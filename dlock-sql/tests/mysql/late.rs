//! Requests that arrive after their connection was closed.

use std::time::Duration;

use dlock_core::{AcquireRequest, Acquired, DynBackend, Mode, Renewal};
use dlock_sql::Mysql;
use dlock_testlab::{Door, Proxy, Stop, Verdict, mariadb::MariadbServer};
use tokio::{task::JoinHandle, time::sleep};

use crate::support::{
    LEASE, attempt, config, connect, exclusive, free, server, take, until, with_mariadb,
};

/// Longer than a test takes, so that no request arrives after its deadline.
const PATIENT: &str = "dlock.response_timeout=60s";

struct Scene {
    server: MariadbServer,
    proxy: Proxy,
    client: DynBackend,
    other: DynBackend,
}

impl Scene {
    async fn start(options: &str, returning: bool) -> Result<Self, Stop> {
        let server = server().await?;
        let other = connect(&server).await?;
        let proxy = Proxy::start(&server.address()).await?;
        let url = server.url().replace(&server.address(), &proxy.address());
        let url = format!("{url}?dlock.connections=1&{options}");
        let client = Mysql::open(config(&url)?.with_returning(returning)).await?;
        let scene = Self { server, proxy, client, other };
        scene.prepare().await?;
        Ok(scene)
    }

    /// The connection has each statement prepared, so that it is sent as one.
    async fn prepare(&self) -> Verdict {
        let all = ["first", "second"].map(exclusive);
        take(&self.client, &all[0]).await?;
        free(&self.client, &all[0]).await?;
        together(&self.client, &all).await?;
        for request in &all {
            free(&self.client, request).await?;
        }
        Ok(())
    }

    /// Sends acquires on a connection whose requests are held back. The client retries when the
    /// connection is closed.
    async fn ask_twice(&self, requests: &[AcquireRequest]) -> Result<Vec<Acquired>, Stop> {
        let asking = ask_in_vain(&self.proxy, &self.client, requests).await?;
        self.proxy.abandon();
        asking.await?
    }

    /// The contents of the row of a lock.
    async fn row(&self, lock: &str) -> Result<String, Stop> {
        let read =
            format!("SELECT CONCAT(base, ' ', snap, log) FROM dlock_lock WHERE name = '{lock}'");
        Ok(self.server.query(&read).await?.concat().concat())
    }

    /// Delivers the delayed requests, and waits until they have reached these rows.
    async fn arrive(&self, requests: &[AcquireRequest]) -> Verdict {
        let mut before = Vec::new();
        for request in requests {
            before.push(self.row(request.name.as_str()).await?);
        }
        self.proxy.arrive();
        for (request, before) in requests.iter().zip(before) {
            let lock = request.name.as_str();
            until("it arrives", async || Ok(self.row(lock).await? != before)).await?;
        }
        Ok(())
    }

    /// Checks that these locks have no holder and no waiter.
    async fn are_free(&self, requests: &[AcquireRequest]) -> Verdict {
        for request in requests {
            let seen = self.other.inspect(&request.name).await?;
            assert!(seen.is_free() && seen.waiters.is_empty(), "{}: {seen:?}", request.name);
            let next = attempt(request.name.as_str());
            take(&self.other, &next).await?;
            free(&self.other, &next).await?;
        }
        Ok(())
    }
}

async fn together(client: &DynBackend, all: &[AcquireRequest]) -> Result<Vec<Acquired>, Stop> {
    match client.acquire_all(all) {
        Some(answer) => Ok(answer.await?),
        None => Err(Stop::failed("one by one")),
    }
}

/// Sends acquires on connections whose requests are held back.
async fn ask_in_vain(
    proxy: &Proxy,
    client: &DynBackend,
    requests: &[AcquireRequest],
) -> Result<JoinHandle<Result<Vec<Acquired>, Stop>>, Stop> {
    let sent = proxy.request_bytes();
    proxy.strand();
    let (client, requests) = (client.clone(), requests.to_vec());
    let asking = tokio::spawn(async move {
        match &requests[..] {
            [request] => Ok(vec![client.acquire(request).await?]),
            all => together(&client, all).await,
        }
    });
    until("it is sent", async || Ok(proxy.request_bytes() > sent)).await?;
    Ok(asking)
}

fn kinds() -> Result<Vec<Vec<AcquireRequest>>, Stop> {
    let of = |lock, mode| exclusive(lock).with_mode(mode);
    Ok(vec![
        vec![exclusive("fair")],
        vec![attempt("mutex")],
        vec![of("reader", Mode::Shared)],
        vec![of("semaphore", Mode::permits(2, 3)?)],
        ["one", "two", "three"].map(exclusive).to_vec(),
    ])
}

/// The sender continues on another connection, acquires the lock, and releases it. Then its first
/// request arrives, before its deadline.
#[test]
fn an_acquire_overtaken_by_its_release_takes_nothing() {
    with_mariadb(async {
        for returning in [true, false] {
            let scene = Scene::start(PATIENT, returning).await?;
            for requests in kinds()? {
                scene.prepare().await?;
                let answers = scene.ask_twice(&requests).await?;
                assert!(answers.iter().all(|answer| matches!(answer, Acquired::Granted(_))));
                for request in &requests {
                    free(&scene.client, request).await?;
                }
                scene.arrive(&requests).await?;
                scene.are_free(&requests).await?;
            }
        }
        Ok(())
    });
}

/// A claim that was refused as busy is not released.
#[test]
fn a_refused_try_takes_nothing_later() {
    with_mariadb(async {
        let scene = Scene::start(PATIENT, true).await?;
        let (held, tries) = (exclusive("try"), attempt("try"));
        take(&scene.other, &held).await?;
        assert_eq!(scene.ask_twice(std::slice::from_ref(&tries)).await?, [Acquired::Busy]);
        free(&scene.other, &held).await?;
        let barred = async || Ok(scene.row("try").await?.contains(" x"));
        until("the claim is given back", barred).await?;
        scene.arrive(std::slice::from_ref(&tries)).await?;
        scene.are_free(&[tries]).await
    });
}

/// A renewal that was sent before the last renewal of its claim may arrive after it. It neither
/// shortens the lease nor extends it.
#[test]
fn a_late_renewal_leaves_the_lease_of_the_last_one() {
    with_mariadb(async {
        let (short, long) = (Duration::from_secs(12), Duration::from_secs(60));
        for (late, last) in [(short, long), (long, short)] {
            let scene = Scene::start(PATIENT, true).await?;
            let held = exclusive("job").with_lease(short);
            take(&scene.client, &held).await?;
            let renewal = |lease| [Renewal::new(held.as_claim(), held.mode, lease)];
            scene.client.renew(&renewal(short)).await?;
            let (sent, client) = (scene.proxy.request_bytes(), scene.client.clone());
            scene.proxy.strand();
            let late = renewal(late);
            let renewing = tokio::spawn(async move { client.renew(&late).await });
            until("it is sent", async || Ok(scene.proxy.request_bytes() > sent)).await?;
            scene.proxy.abandon();
            // The renewal is retried on the next connection.
            renewing.await??;
            scene.client.renew(&renewal(last).map(Renewal::as_last)).await?;
            scene.arrive(std::slice::from_ref(&held)).await?;
            let state = scene.other.inspect(&held.name).await?;
            let left = state.holders.first().map(|holder| holder.remaining).unwrap_or_default();
            assert!((left > short) == (last == long), "{left:?} of {last:?}");
        }
        Ok(())
    });
}

/// The sender ends, so nothing remembers its request.
#[test]
fn a_request_that_arrives_past_its_deadline_does_nothing() {
    with_mariadb(async {
        for requests in kinds()? {
            let scene = Scene::start("dlock.response_timeout=1s", true).await?;
            let asking = ask_in_vain(&scene.proxy, &scene.client, &requests).await?;
            scene.proxy.door(Door::Closed).await?;
            scene.proxy.abandon();
            assert!(asking.await?.is_err());
            // Twice the response timeout of the sender.
            sleep(Duration::from_secs(2)).await;
            scene.arrive(&requests).await?;
            scene.are_free(&requests).await?;
        }
        Ok(())
    });
}

/// The plain form can't record released claims, so the claim is released twice.
#[test]
fn a_row_taken_by_a_late_request_is_released() {
    with_mariadb(async {
        let server = server().await?;
        let plain = "dlock.plain=row&dlock.create_schema=true&dlock.response_timeout=3s";
        let other = Mysql::open(config(&format!("{}?{plain}", server.url()))?).await?;
        let proxy = Proxy::start(&server.address()).await?;
        let url = server.url().replace(&server.address(), &proxy.address());
        let client = Mysql::open(config(&format!("{url}?{plain}"))?).await?;
        for lock in ["first", "a"] {
            let request = attempt(lock);
            take(&client, &request).await?;
            free(&client, &request).await?;
        }
        let request = attempt("a").with_lease(LEASE * 20);
        let asking = ask_in_vain(&proxy, &client, std::slice::from_ref(&request)).await?;
        proxy.abandon();
        assert!(matches!(asking.await??[..], [Acquired::Granted(_)]));
        free(&client, &request).await?;
        proxy.arrive();
        // The late request may hold the lock until its deadline, but not for its lease of ten
        // minutes.
        sleep(Duration::from_secs(3)).await;
        let is_free = async || Ok(other.inspect(&request.name).await?.is_free());
        until("it is given back", is_free).await?;
        let next = attempt("a");
        take(&other, &next).await?;
        free(&other, &next).await
    });
}
