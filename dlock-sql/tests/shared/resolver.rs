//! A child process with its own file of host names.

use std::process::Command;

use dlock_testlab::{Stop, Verdict};

/// The URL that a child is to use.
const URL: &str = "DLOCK_TEST_SQL_URL";

/// Which URL a child is to use, if this process is one.
pub(crate) fn of_child() -> Option<String> {
    std::env::var(URL).ok()
}

/// Runs this test in a child, for which `localhost` has these addresses, in this order.
pub(crate) fn in_child(test: &str, url: &str, addresses: &[&str]) -> Verdict {
    let lines: String = addresses.iter().map(|address| format!("{address} localhost\\n")).collect();
    let script = format!(
        "hosts=$(mktemp) && printf '{lines}' >\"$hosts\" && chmod 644 \"$hosts\" && \
         mount --bind \"$hosts\" /etc/hosts && rm -f \"$hosts\" && exec \"$@\""
    );
    for namespace in ["-m", "-rm"] {
        let child = |program: &str| {
            let mut child = Command::new("unshare");
            child.args([namespace, "sh", "-c", &script, "sh", program]);
            child
        };
        let Ok(shown) = child("getent").args(["ahosts", "localhost"]).output() else { continue };
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        let is_first = shown.starts_with(addresses[0]);
        if !is_first || !addresses.iter().all(|address| shown.contains(address)) {
            continue;
        }
        let exe = std::env::current_exe()?.display().to_string();
        let output = child(&exe).args(["--exact", test, "--nocapture"]).env(URL, url).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "{text}\n{errors}");
        return Ok(());
    }
    Err(Stop::missing("this user may not mount a file of host names, or IPv6 is off"))
}
