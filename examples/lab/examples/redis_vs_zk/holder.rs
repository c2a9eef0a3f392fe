//! A process that holds a lock until it is killed.

use std::{env, process::Stdio, time::Duration};

use dlock_testlab::Stop;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader},
    process::{Child, Command},
    time::timeout,
};

/// The environment variable with the URL of the lock. It is not an argument, because a URL may
/// contain a password.
const URL: &str = "REDIS_VS_ZK_HOLD_AT";

/// The name of the lock that the process holds.
pub(crate) const NAME: &str = "orphan";

/// Starts a holder process, and waits until it holds the lock.
pub(crate) async fn start(url: &str) -> Result<Child, Stop> {
    let mut child = Command::new(env::current_exe()?)
        .env(URL, url)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let said = child.stdout.take().ok_or_else(|| Stop::failed("the holder has no voice"))?;
    let mut lines = BufReader::new(said).lines();
    match timeout(Duration::from_secs(30), lines.next_line()).await?? {
        Some(_) => Ok(child),
        None => Err(Stop::failed("the holder ended before it held the lock; it has said why")),
    }
}

/// Holds the lock until the end, if this process is a holder. Returns `false` in other processes.
pub(crate) async fn serve() -> Result<bool, Stop> {
    let Ok(url) = env::var(URL) else { return Ok(false) };
    let locks = dlock::connect(&url).await?;
    let _guard = locks.mutex(NAME)?.lock().await?;
    println!("held");
    // Reads until the process is killed or its parent has ended.
    tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
    Ok(true)
}
