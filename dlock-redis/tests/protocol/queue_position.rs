//! Lost positions in a queue, and claims that join it again.

use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use dlock_core::{
    AcquireRequest, Acquired, Answer, Backend, Claim, DynBackend, Error, ErrorKind, Grant,
    Guarantees, LockName, LockOptions, LockState, Locks, Released, Renewal, Renewed,
};
use dlock_testkit::{Stop, Verdict};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{
    LEASE, SOON, attempt, connect, exclusive, free, keys, millis, queue, run, start, take, until,
};

/// A client that gets one outdated answer: its claim is lost, although it has joined the queue
/// again.
#[derive(Debug)]
struct OutdatedAnswer(DynBackend, AtomicBool);

#[async_trait]
impl Backend for OutdatedAnswer {
    fn store(&self) -> &str {
        self.0.store()
    }

    fn guarantees(&self) -> Guarantees {
        self.0.guarantees()
    }

    fn acquire(&self, request: &AcquireRequest) -> Answer<Acquired> {
        self.0.acquire(request)
    }

    async fn granted(&self, request: &AcquireRequest) -> Result<Grant, Error> {
        match self.1.swap(true, Ordering::SeqCst) {
            true => self.0.granted(request).await,
            false => Err(Error::new(ErrorKind::NotHeld, "the place in the queue has ended")),
        }
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, Error> {
        self.0.renew(renewals).await
    }

    fn release(&self, claim: &Claim) -> Answer<Released> {
        self.0.release(claim)
    }

    async fn inspect(&self, name: &LockName) -> Result<LockState, Error> {
        self.0.inspect(name).await
    }
}

async fn waiters(client: &DynBackend) -> Result<usize, Stop> {
    Ok(client.inspect(&attempt("a").name).await?.waiters.len())
}

#[test]
fn an_older_answer_does_not_block_a_claim_that_joined_again() {
    run(async {
        let server = start().await?;
        let one = connect(&server.url()).await?;
        let two = OutdatedAnswer(connect(&server.url()).await?, AtomicBool::new(false));
        let locks = Locks::new(std::sync::Arc::new(two))?;
        let locks = locks.with_options(LockOptions::new().with_lease(LEASE))?;
        let held = exclusive("a");
        take(&one, &held).await?;
        let lock = locks.mutex("a")?;
        let (began, waits) = (Instant::now(), async { timeout(SOON, lock.lock()).await });
        let frees = async {
            sleep(millis(300)).await;
            until("it waits once", async || Ok(waiters(&one).await? == 1)).await?;
            free(&one, &held).await
        };
        let (guard, freed) = tokio::join!(waits, frees);
        freed?;
        guard??.release().await?;
        assert!(began.elapsed() < LEASE, "it waited for a claim of its own");
        until("nobody is left", async || Ok(one.inspect(&held.name).await?.is_free())).await
    });
}

/// The server loses the position of a waiter.
async fn loses_its_position(lose: &[&str]) -> Verdict {
    let server = start().await?;
    let (one, two) = (connect(&server.url()).await?, connect(&server.url()).await?);
    let options = LockOptions::new().with_lease(millis(900));
    let locks = Locks::new(two)?.with_options(options)?;
    let (held, behind) = (exclusive("a"), exclusive("a"));
    take(&one, &held).await?;
    let lock = locks.mutex("a")?;
    let waits = async { timeout(SOON, lock.lock()).await };
    let frees = async {
        until("it waits", async || Ok(waiters(&one).await? == 1)).await?;
        server.command(lose).await?.ok()?;
        assert_eq!(waiters(&one).await?, 0);
        // A poll reports the loss, and the claim joins the queue again, behind claims that joined
        // meanwhile.
        queue(&one, &behind).await?;
        until("it waits again", async || Ok(waiters(&one).await? == 2)).await?;
        free(&one, &behind).await?;
        free(&one, &held).await
    };
    let (guard, freed) = tokio::join!(waits, frees);
    freed?;
    guard??.release().await?;
    until("nobody is left", async || Ok(one.inspect(&held.name).await?.is_free())).await
}

#[test]
fn a_waiter_that_lost_its_position_joins_again() {
    run(async {
        loses_its_position(&["DEL", &keys("a")[2]]).await?;
        loses_its_position(&["DEL", &keys("a")[3]]).await?;
        loses_its_position(&["DEL", &keys("a")[2], &keys("a")[3]]).await
    });
}
