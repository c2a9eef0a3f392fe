//! Work that ends when its lock is lost: first because its lease expired, then because an operator
//! revoked the lock.
//!
//! `cargo run --example lost_lease`, on another store with `-- --url URL`

mod given;

use std::{error::Error, future::pending, time::Duration};

use dlock::{
    ErrorKind, LockOptions,
    guard::{Ended, GuardState, Renew},
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let locks = dlock::connect(&given::url("memory:")?).await?;
    let options = LockOptions::new().with_lease(Duration::from_millis(600));

    // This lease is never renewed, as if the process were cut off from the store.
    let brief = locks.with_options(options.with_renew(Renew::Never))?;
    let guard = brief.mutex("report")?.lock().await?;
    println!("held, with {:.1?} left", guard.remaining());
    let ended = guard.lost().await;
    println!("state {:?}, since {ended}", guard.state());
    if (ended, guard.state()) != (Ended::Expired, GuardState::Lost) {
        return Err("the guard does not know that its lease has ended".into());
    }
    if let Err(error) = guard.check() {
        println!("before each step of the work, check() says: {error}");
    }

    // When an operator revokes the lock, the work is dropped.
    let kept = locks.with_options(options)?;
    let guard = kept.mutex("migration")?.lock().await?;
    println!("\nheld again, with token {}", guard.token());
    let operator = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        locks.force_release("migration").await
    };
    let (work, taken) = tokio::join!(guard.run(pending::<()>()), operator);
    println!("taken by force from {} holder", taken?.len());
    match work {
        Err(error) if error.kind() == ErrorKind::Lost => println!("the work has ended: {error}"),
        other => return Err(format!("the work went on without its lock: {other:?}").into()),
    }
    drop(guard);
    Ok(locks.shutdown(Duration::from_secs(5)).await?)
}
