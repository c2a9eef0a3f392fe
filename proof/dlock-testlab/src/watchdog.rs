//! A shell that kills a server after the test process has ended.

use std::{
    io::Write,
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
};

use crate::{Stop, Verdict};

/// Reads the id of the process that it has to kill, or an empty line if there is none. When the
/// pipe closes, it kills that process, its children and its process group, runs the commands `$2`
/// in the directory `$1`, and removes the directory. The pause gives the processes time to end
/// first.
const SCRIPT: &str = r#"
server=
while read -r line; do server=$line; done
if [ -n "$server" ]; then
  kill -s STOP -- "$server"
  kill -s KILL -- $(pgrep -P "$server")
  kill -s KILL -- "-$server"
  sleep 0.1
fi
(cd "$1" && eval "$2")
rm -rf -- "$1" || { sleep 1; rm -rf -- "$1"; }
"#;

/// A shell that waits for the end of a pipe that only the test process holds open.
#[derive(Debug)]
pub(super) struct Watchdog(Child);

impl Watchdog {
    /// Starts a watchdog for a directory, without a process.
    pub(super) fn over(directory: &Path, remains: &str) -> Result<Self, Stop> {
        let shell = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "watchdog"])
            .arg(directory)
            .arg(remains)
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self(shell))
    }

    /// Adds this process to the watchdog.
    pub(super) fn watch(&self, server: u32) -> Verdict {
        self.tell(&server.to_string())
    }

    /// Removes the process from the watchdog. Call it before the process is reaped: the watchdog
    /// must never kill a later process with the same id.
    pub(super) fn forget(&self) -> Verdict {
        self.tell("")
    }

    fn tell(&self, line: &str) -> Verdict {
        let pipe = self.0.stdin.as_ref().ok_or_else(|| Stop::failed("no pipe"));
        let mut pipe = pipe?;
        Ok(pipe.write_all(format!("{line}\n").as_bytes())?)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // These fail only for a process that has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
