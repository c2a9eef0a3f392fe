//! Tests that run again in a process in which `localhost` has other addresses.

use std::process::{Output, Stdio};

use tokio::process::Command;

use crate::{Stop, Verdict};

/// The variable with the address or URL of the server that the second process is to use.
const SERVER: &str = "DLOCK_TEST_RERUN_SERVER";

/// The mount namespace of a user who may create one, and that of any user where the system allows it.
const NAMESPACES: [&str; 2] = ["-m", "-rm"];

/// Returns the server that [`rerun_with_addresses`] was called with, if it started this process.
pub fn server_of_rerun() -> Option<String> {
    std::env::var(SERVER).ok()
}

/// Runs a test of this test binary once more, in a process for which `localhost` has these
/// addresses, in this order. That process gets `server` from [`server_of_rerun`].
///
/// # Errors
/// If the test does not pass there, and [`Stop::missing`] if this user may not mount a file of host
/// names, or if the system does not have the addresses.
pub async fn rerun_with_addresses(test: &str, server: &str, addresses: &[&str]) -> Verdict {
    let mut last = "this user may not mount a file of host names".to_owned();
    for namespace in NAMESPACES {
        let Ok(shown) = run(namespace, addresses, server, "getent", &["ahosts", "localhost"]).await
        else {
            continue;
        };
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        // In the order in which a program gets them.
        let mut shown: Vec<_> =
            shown.lines().filter_map(|line| line.split_whitespace().next()).collect();
        shown.dedup();
        if shown != addresses {
            last = format!("localhost has the addresses {shown:?}");
            continue;
        }
        let program = std::env::current_exe()?.display().to_string();
        let args = ["--exact", test, "--nocapture"];
        let ended = run(namespace, addresses, server, &program, &args).await?;
        let text = String::from_utf8_lossy(&ended.stdout);
        return match ended.status.success() && text.contains("1 passed") {
            true => Ok(()),
            false => {
                let errors = String::from_utf8_lossy(&ended.stderr);
                Err(Stop::failed(format!("with addresses of its own:\n{text}\n{errors}")))
            }
        };
    }
    Err(Stop::missing(last))
}

async fn run(
    namespace: &str,
    addresses: &[&str],
    server: &str,
    program: &str,
    args: &[&str],
) -> Result<Output, Stop> {
    let lines: String = addresses.iter().map(|address| format!("{address} localhost\\n")).collect();
    let script = format!(
        "hosts=$(mktemp) && printf '{lines}' >\"$hosts\" && chmod 644 \"$hosts\" && \
         mount --bind \"$hosts\" /etc/hosts && rm -f \"$hosts\" && exec \"$@\""
    );
    let mut command = Command::new("unshare");
    command.args([namespace, "sh", "-c", &script, "sh", program]).args(args);
    command.env(SERVER, server).stdin(Stdio::null()).kill_on_drop(true);
    Ok(command.output().await?)
}
