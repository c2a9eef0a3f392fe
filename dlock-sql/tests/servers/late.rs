//! Requests that arrive after their connection was closed.

use std::time::Duration;

use dlock_core::{AcquireRequest, Acquired, DynBackend, Mode, Renewal};
use dlock_testlab::{
    Door, Proxy, Stop, Verdict,
    client::{LEASE, ask, works},
};
use tokio::{task::JoinHandle, time::sleep};

use crate::support::{
    Config, Server, Store, VARIANTS, attempt, client_of, config, exclusive, free, granted, run,
    set_up, take, until,
};

/// Longer than a test takes, so that no request arrives after its deadline.
const PATIENT: &str = "dlock.response_timeout=60s";

struct Scene {
    server: Server,
    proxy: Proxy,
    client: DynBackend,
    other: DynBackend,
}

impl Scene {
    async fn start(options: &str) -> Result<Self, Stop> {
        Self::with(options, VARIANTS[0]).await
    }

    async fn with(options: &str, vary: fn(Config) -> Config) -> Result<Self, Stop> {
        let server = set_up().await?;
        let other = client_of(&server).await?;
        let proxy = Proxy::start(&server.address()).await?;
        let url = server.url().replace(&server.address(), &proxy.address());
        let url = format!("{url}?dlock.connections=1&{options}");
        let client = Store::open(vary(config(&url)?)).await?;
        let scene = Self { server, proxy, client, other };
        scene.prepare().await?;
        Ok(scene)
    }

    /// The connection has each statement prepared, so that it is sent as one.
    async fn prepare(&self) -> Verdict {
        works(&self.client, "first").await?;
        let both = ["first", "second"].map(exclusive);
        let together = self.client.acquire_all(&both);
        together.ok_or_else(|| Stop::failed("one by one"))?.await?;
        for request in &both {
            free(&self.client, request).await?;
        }
        Ok(())
    }

    /// Sends acquires on a connection whose requests are held back. The client retries when the
    /// connection is closed.
    async fn ask_twice(&self, requests: &[AcquireRequest]) -> Result<Vec<Acquired>, Stop> {
        let asking = self.ask_in_vain(requests).await?;
        self.proxy.abandon();
        asking.await?
    }

    /// Sends acquires on a connection whose requests are held back.
    async fn ask_in_vain(
        &self,
        requests: &[AcquireRequest],
    ) -> Result<JoinHandle<Result<Vec<Acquired>, Stop>>, Stop> {
        let (client, requests) = (self.client.clone(), requests.to_vec());
        sent_in_vain(&self.proxy, async move {
            Ok(match &requests[..] {
                [request] => vec![client.acquire(request).await?],
                all => match client.acquire_all(all) {
                    Some(answer) => answer.await?,
                    None => return Err(Stop::failed("one by one")),
                },
            })
        })
        .await
    }

    /// The contents of the row of a lock.
    async fn row(&self, lock: &str) -> Result<String, Stop> {
        let read = format!("SELECT base, snap, log FROM dlock_lock WHERE name = '{lock}'");
        Ok(self.server.query(&read).await?.concat().join(" "))
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

/// Starts this work on connections whose requests are held back.
async fn sent_in_vain<T: Send + 'static>(
    proxy: &Proxy,
    asking: impl Future<Output = Result<T, Stop>> + Send + 'static,
) -> Result<JoinHandle<Result<T, Stop>>, Stop> {
    let sent = proxy.request_bytes();
    proxy.strand();
    let asking = tokio::spawn(asking);
    until("it is sent", async || Ok(proxy.request_bytes() > sent)).await?;
    Ok(asking)
}

/// Sends this acquire on a connection whose requests are held back.
pub(crate) async fn ask_in_vain(
    proxy: &Proxy,
    client: &DynBackend,
    request: &AcquireRequest,
) -> Result<JoinHandle<Result<Acquired, Stop>>, Stop> {
    let (client, request) = (client.clone(), request.clone());
    sent_in_vain(proxy, async move { Ok(client.acquire(&request).await?) }).await
}

fn kinds() -> Result<Vec<Vec<AcquireRequest>>, Stop> {
    let permits = Mode::permits(2, 3)?;
    Ok(vec![
        vec![exclusive("fair")],
        vec![attempt("mutex")],
        vec![ask("reader", Mode::Shared)],
        vec![ask("semaphore", permits)],
        ["one", "two", "three"].map(exclusive).to_vec(),
    ])
}

/// The sender continues on another connection, acquires the lock, and releases it. Then its first
/// request arrives, before its deadline.
#[test]
fn an_acquire_overtaken_by_its_release_takes_nothing() {
    run(async {
        for vary in VARIANTS {
            let scene = Scene::with(PATIENT, *vary).await?;
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

#[test]
fn a_join_that_arrives_after_its_cancel_leaves_no_waiter() {
    run(async {
        let scene = Scene::start(PATIENT).await?;
        for mode in [Mode::Exclusive, Mode::Shared] {
            scene.prepare().await?;
            let (held, waits) = (exclusive("queue"), ask("queue", mode));
            take(&scene.other, &held).await?;
            let answers = scene.ask_twice(std::slice::from_ref(&waits)).await?;
            assert_eq!(answers, [Acquired::Queued]);
            free(&scene.client, &waits).await?;
            scene.arrive(std::slice::from_ref(&waits)).await?;
            assert!(scene.other.inspect(&held.name).await?.waiters.is_empty());
            free(&scene.other, &held).await?;
            scene.are_free(&[waits]).await?;
        }
        Ok(())
    });
}

/// A claim that was refused as busy is not released.
#[test]
fn a_refused_try_takes_nothing_later() {
    run(async {
        let scene = Scene::start(PATIENT).await?;
        let (held, tries) = (exclusive("try"), attempt("try"));
        take(&scene.other, &held).await?;
        let answers = scene.ask_twice(std::slice::from_ref(&tries)).await?;
        assert_eq!(answers, [Acquired::Busy]);
        free(&scene.other, &held).await?;
        let barred = async || Ok(scene.row("try").await?.contains(" x"));
        until("the claim is given back", barred).await?;
        scene.arrive(std::slice::from_ref(&tries)).await?;
        scene.are_free(&[tries]).await
    });
}

/// The sender ends, so nothing remembers its request.
#[test]
fn a_request_that_arrives_past_its_deadline_does_nothing() {
    run(async {
        for requests in kinds()? {
            let scene = Scene::start("dlock.response_timeout=1s").await?;
            let asking = scene.ask_in_vain(&requests).await?;
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

/// A late renewal does not renew the lock of a client that has lost it.
#[test]
fn a_renewal_after_the_lease_has_no_effect() {
    run(async {
        let scene = Scene::start("dlock.response_timeout=1s").await?;
        let held = exclusive("kept").with_lease(Duration::from_secs(6));
        take(&scene.client, &held).await?;
        let renewal = Renewal::new(held.as_claim(), held.mode, held.lease);
        let client = scene.client.clone();
        let renewing = async move { Ok(client.renew(&[renewal]).await?) };
        let renewing = sent_in_vain(&scene.proxy, renewing).await?;
        scene.proxy.door(Door::Closed).await?;
        scene.proxy.abandon();
        drop(renewing.await?);
        let left = scene.other.inspect(&held.name).await?.holders;
        let left = left.first().map(|holder| holder.remaining);
        // Longer than a third of the lease, for which the core waits for a renewal.
        sleep(Duration::from_millis(2500)).await;
        let row = scene.row("kept").await?;
        if row.is_empty() || left.is_none() {
            return Err(Stop::failed("the lock ended before the test began"));
        }
        scene.arrive(std::slice::from_ref(&held)).await?;
        let now = scene.other.inspect(&held.name).await?.holders;
        assert!(now.first().map(|holder| holder.remaining) < left, "{now:?}, {left:?} before");
        Ok(())
    });
}

/// A renewal that was sent before the last renewal of its claim may arrive after it. It neither
/// shortens the lease nor extends it.
#[test]
fn a_late_renewal_leaves_the_lease_of_the_last_one() {
    run(async {
        let (short, long) = (Duration::from_secs(12), Duration::from_secs(60));
        for (late, last) in [(short, long), (long, short)] {
            let scene = Scene::start(PATIENT).await?;
            let held = exclusive("job").with_lease(short);
            take(&scene.client, &held).await?;
            let renewal = |lease| [Renewal::new(held.as_claim(), held.mode, lease)];
            scene.client.renew(&renewal(short)).await?;
            let (client, late) = (scene.client.clone(), renewal(late));
            let renewing =
                sent_in_vain(&scene.proxy, async move { Ok(client.renew(&late).await?) }).await?;
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

/// The plain form can't record released claims, so the claim is released twice.
#[test]
fn a_row_taken_by_a_late_request_is_released() {
    run(async {
        let server = set_up().await?;
        let plain = "dlock.plain=row&dlock.create_schema=true&dlock.response_timeout=3s";
        let other = Store::open(config(&format!("{}?{plain}", server.url()))?).await?;
        let proxy = Proxy::start(&server.address()).await?;
        let url = server.url().replace(&server.address(), &proxy.address());
        let client = Store::open(config(&format!("{url}?{plain}"))?).await?;
        for lock in ["first", "a"] {
            let request = attempt(lock);
            take(&client, &request).await?;
            free(&client, &request).await?;
        }
        let request = attempt("a").with_lease(LEASE * 20);
        let asking = ask_in_vain(&proxy, &client, &request).await?;
        proxy.abandon();
        assert!(matches!(asking.await??, Acquired::Granted(_)));
        free(&client, &request).await?;
        proxy.arrive();
        // The late request may hold the lock until its deadline, but not for its lease of ten
        // minutes.
        sleep(Duration::from_secs(3)).await;
        let is_free = async || Ok(other.inspect(&request.name).await?.is_free());
        until("it is given back", is_free).await?;
        let next = attempt("a");
        take(&other, &next).await?;
        free(&other, &next).await?;
        // After its deadline, a late request does not acquire the lock at all.
        let request = attempt("b").with_lease(LEASE * 20);
        let asking = ask_in_vain(&proxy, &client, &request).await?;
        proxy.door(Door::Closed).await?;
        proxy.abandon();
        assert!(asking.await?.is_err());
        sleep(Duration::from_secs(4)).await;
        proxy.arrive();
        until_idle(&server).await?;
        take(&other, &attempt("b")).await.map(drop)
    });
}

/// Waits until the sessions without a client have ended: then all requests that arrived have been
/// run.
pub(crate) async fn until_idle(server: &Server) -> Verdict {
    let mut last = 0;
    until("the old sessions end", async || {
        let now = server.connections().await?;
        let same = now == std::mem::replace(&mut last, now);
        sleep(Duration::from_millis(300)).await;
        Ok(same)
    })
    .await
}

/// A waiter is granted the lock over a new connection, whatever happened to the old one.
#[test]
fn a_waiter_whose_connection_is_lost_is_granted_once() {
    run(async {
        let scene = Scene::start(PATIENT).await?;
        let (held, waits) = (exclusive("wait"), exclusive("wait"));
        take(&scene.other, &held).await?;
        let answers = scene.ask_twice(std::slice::from_ref(&waits)).await?;
        assert_eq!(answers, [Acquired::Queued]);
        scene.arrive(std::slice::from_ref(&waits)).await?;
        assert_eq!(scene.other.inspect(&held.name).await?.waiters.len(), 1);
        free(&scene.other, &held).await?;
        granted(&scene.client, &waits).await?;
        free(&scene.client, &waits).await?;
        scene.are_free(&[waits]).await
    });
}
