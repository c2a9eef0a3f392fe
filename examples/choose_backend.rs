//! Chooses the store by a URL when the program starts. The program states the guarantees that it
//! needs and refuses a store that can't give them, with the reason.
//!
//! `cargo run --example choose_backend --features sqlite`, another store with `-- --url URL`

mod given;

use std::error::Error;

use dlock::{
    ErrorKind, Locks,
    error::ConfigIssue,
    guarantees::{Fencing, Guarantees, Scope},
};
use tempfile::TempDir;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let dir = TempDir::with_prefix("dlock-choose-")?;
    let file = dir.path().join("locks.db");
    let url = given::url(&format!("sqlite:{}?dlock.create_schema=true", file.display()))?;

    println!("memory: is refused:\n  {}", refused("memory:").await?);
    println!("consul: is unknown:\n  {}", refused("consul://localhost").await?);
    println!("a wrong option is told:\n  {}", refused("memory:?dlock.leese=5s").await?);

    let locks = open(&url).await?;
    println!("{} promises:", locks.backend().store());
    for (what, _, promise) in locks.guarantees().rows() {
        println!("  {what}: {promise}");
    }
    locks.mutex("first")?.lock().await?.release().await?;
    Ok(locks.shutdown(std::time::Duration::from_secs(5)).await?)
}

/// Connects, and verifies at the start that several processes can share the locks and that fencing
/// tokens are ordered.
async fn open(url: &str) -> Result<Locks, dlock::Error> {
    let locks = dlock::connect(url).await?;
    locks.require(&Guarantees::WEAKEST.with_scope(Scope::Machine).with_fencing(Fencing::Clock))?;
    Ok(locks)
}

/// Returns the error for a URL that must be refused.
async fn refused(url: &str) -> Result<dlock::Error, String> {
    match open(url).await {
        Err(error) => match error.kind() {
            ErrorKind::Config(
                ConfigIssue::Guarantee | ConfigIssue::UnknownScheme | ConfigIssue::UnknownOption,
            ) => Ok(error),
            _ => Err(format!("{url} is refused for another reason: {error}")),
        },
        Ok(_) => Err(format!("{url} was accepted")),
    }
}
