//! A tree of calls that all need the same lock. Each call enters it with the owner that it gets,
//! and only the outermost entry sends a request to the store.
//!
//! `cargo run --example reentrant_tree`, on another store with `-- --url URL`

mod given;

use std::{error::Error, pin::Pin, time::Duration};

use dlock::{FencingToken, ReentrantMutex, kinds::Owner};

type Failure = Box<dyn Error + Send + Sync>;
type Visit<'a> = Pin<Box<dyn Future<Output = Result<usize, Failure>> + Send + 'a>>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let locks = dlock::connect(&given::url("memory:")?).await?;
    let lock = locks.reentrant("accounts")?;
    let owner = Owner::new();

    let entries = visit(&lock, &owner, 3, None).await?;
    println!("{entries} entries, one trip to the store; held now: {}", lock.hold_count(&owner));
    if (entries, lock.hold_count(&owner)) != (15, 0) {
        return Err("a tree of depth 3 has 15 nodes, and leaves nothing held".into());
    }

    // A different owner has to wait, also in the same task.
    let _guard = lock.lock_as(&owner).await?;
    if lock.try_lock_as(&Owner::new()).await?.is_some() {
        return Err("another owner was let in".into());
    }
    println!("another owner is kept out");
    drop(_guard);
    Ok(locks.shutdown(Duration::from_secs(5)).await?)
}

/// Visits a node and all nodes below it, each under the lock. Returns the number of nodes.
fn visit<'a>(
    lock: &'a ReentrantMutex,
    owner: &'a Owner,
    depth: usize,
    above: Option<FencingToken>,
) -> Visit<'a> {
    Box::pin(async move {
        let guard = lock.lock_as(owner).await?;
        let (held, token) = (lock.hold_count(owner), guard.token());
        println!("{}held {held} times, token {token}", "  ".repeat(held - 1));
        if above.is_some_and(|above| above != token) {
            return Err("an inner entry got another token".into());
        }
        let mut entries = 1;
        if depth > 0 {
            for _ in 0..2 {
                entries += visit(lock, owner, depth - 1, Some(token)).await?;
            }
        }
        guard.release().await?;
        Ok(entries)
    })
}
