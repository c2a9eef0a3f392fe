//! Runs SQL through a server's own command-line client.

use std::process::Stdio;

use tokio::{io::AsyncWriteExt, process::Command};

use crate::Stop;

/// Sends `sql` to the client's standard input and returns the client's output. The client ignores
/// the settings of the user who runs the tests.
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
        // A client without a connection does not read its input. The error below gives the reason.
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
