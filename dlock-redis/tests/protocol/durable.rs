//! Grants that replicas must confirm, with too few replicas.

use dlock_core::{Acquired, ErrorKind, Locks};
use tokio::time::timeout;

use crate::support::{SOON, attempt, connect, exclusive, free, queue, run, says, start, take};

#[test]
fn a_busy_lock_is_reported_busy_without_replicas() {
    run(async {
        let server = start().await?;
        let other = connect(&server.url()).await?;
        let url = format!("{}?dlock.durability=1&dlock.response_timeout=2s", server.url());
        let client = connect(&url).await?;
        let locks = Locks::new(client.clone())?;
        let (held, waiting) = (exclusive("a"), exclusive("a"));
        take(&other, &held).await?;
        assert!(timeout(SOON, locks.mutex("a")?.try_lock()).await??.is_none());
        assert!(timeout(SOON, locks.fair("a")?.try_lock()).await??.is_none());
        assert!(timeout(SOON, locks.rw("a")?.read().try_lock()).await??.is_none());
        assert_eq!(timeout(SOON, client.acquire(&attempt("a"))).await??, Acquired::Busy);
        timeout(SOON, queue(&client, &waiting)).await??;
        free(&client, &waiting).await?;
        free(&other, &held).await?;
        // An unconfirmed grant is none.
        let error = timeout(SOON, client.acquire(&attempt("a"))).await?;
        says(&error.err().ok_or("it is granted")?, ErrorKind::Unavailable, "dlock.durability");
        Ok(())
    });
}
