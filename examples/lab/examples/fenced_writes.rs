//! A holder whose lease has expired writes late, to a table and to a file. Both refuse its token.
//!
//! `cargo run -p dlock-examples-lab --example fenced_writes`, the locks elsewhere with `-- --url URL`

#[path = "../../given/mod.rs"]
mod given;

use std::{error::Error, fs, path::PathBuf, time::Duration};

use dlock::{FencingToken, LockOptions, fencing::Fence, guard::Renew};
use sqlx::sqlite::{SqlitePool, SqlitePoolOptions};
use tempfile::TempDir;

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    // A lease without renewal simulates a holder that was stopped for longer than its lease.
    let options =
        LockOptions::new().with_lease(Duration::from_millis(500)).with_renew(Renew::Never);
    let locks = dlock::connect(&given::url("memory:")?).await?.with_options(options)?;
    let dir = TempDir::with_prefix("dlock-fenced-")?;
    let mut report = Report { fence: Fence::new(), file: dir.path().join("report.txt") };
    let stock = SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await?;
    sqlx::query("CREATE TABLE stock (item INTEGER PRIMARY KEY, left INTEGER, token INTEGER)")
        .execute(&stock)
        .await?;
    sqlx::query("INSERT INTO stock VALUES (42, 10, 0)").execute(&stock).await?;

    let late = locks.mutex("inventory/42")?.lock().await?;
    println!("the first holder has token {}; {}", late.token(), late.lost().await);
    let next = locks.mutex("inventory/42")?.lock().await?;
    println!("the second holder has token {}", next.token());

    if !sell(&stock, 9, next.token()).await? {
        return Err("the table refused the holder".into());
    }
    report.write("9 left", next.token())?;
    println!("the second holder has written to both");

    if sell(&stock, 5, late.token()).await? {
        return Err("the table took a late write".into());
    }
    println!("the table refuses the first holder: no row has a token as small as {}", late.token());
    match report.write("5 left", late.token()) {
        Ok(()) => return Err("the file took a late write".into()),
        Err(refused) => println!("the file refuses the first holder: {refused}"),
    }
    drop((late, next));
    Ok(locks.shutdown(Duration::from_secs(5)).await?)
}

/// Writes with the token compared in the same statement. Returns whether the table accepted it.
async fn sell(stock: &SqlitePool, left: i64, token: FencingToken) -> Result<bool, sqlx::Error> {
    // Equal tokens belong to one grant: a holder may write more than once.
    sqlx::query("UPDATE stock SET left = ?1, token = ?2 WHERE item = 42 AND token <= ?2")
        .bind(left)
        .bind(token.as_i64())
        .execute(stock)
        .await
        .map(|done| done.rows_affected() == 1)
}

/// A file can't compare tokens, so the code that writes it checks a fence first. `&mut` allows one
/// write at a time.
struct Report {
    fence: Fence,
    file: PathBuf,
}

impl Report {
    fn write(&mut self, text: &str, token: FencingToken) -> Result<(), Failure> {
        self.fence.admit(token)?;
        Ok(fs::write(&self.file, text)?)
    }
}
