//! Having a server's own command-line client do SQL.

use std::process::Stdio;

use tokio::{io::AsyncWriteExt, process::Command};

use crate::Stop;

/// Has the client do the SQL that it gets as its input, free of the settings of whoever runs this.
/// What it prints.
pub(super) async fn ask(mut client: Command, sql: &str) -> Result<String, Stop> {
    let mut client = client
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let input = client.stdin.take();
    let write = async {
        // A client that has no connection does not read; it says why, below.
        if let Some(mut input) = input {
            let _ = input.write_all(sql.as_bytes()).await;
        }
    };
    let ((), output) = tokio::join!(write, client.wait_with_output());
    let output = output?;
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout)?),
        false => Err(Stop::failed(String::from_utf8_lossy(&output.stderr).trim())),
    }
}
