//! One lock, in memory or in the store of a URL: `cargo run --example quickstart -- memory:`

use dlock::Error;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let locks = dlock::connect(&url).await?;

    let guard = locks.mutex("inventory/42")?.lock().await?;
    println!("locked {} with fencing token {}", guard.name(), guard.token());
    println!("its lease has {:.1?} left and is renewed until it is released", guard.remaining());
    println!("{:?}", guard.release().await?);

    locks.shutdown(std::time::Duration::from_secs(5)).await
}
