//! What kills a server when nobody else is left to do it.

use std::{
    io::Write,
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
};

use crate::{Stop, Verdict};

/// Reads the id of the process that is to be killed now, or an empty line when there is none. Once
/// the pipe closes it kills that process, its children and its process group, does the commands
/// `$2` in the directory `$1`, and removes the directory. The pause lets the processes end before.
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

/// A shell that waits for the end of a pipe that only the test process holds.
#[derive(Debug)]
pub(super) struct Watchdog(Child);

impl Watchdog {
    /// Watches over a directory, and over no process yet.
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

    /// Watches over this process, too.
    pub(super) fn watch(&self, server: u32) -> Verdict {
        self.tell(&server.to_string())
    }

    /// Forgets the process. To be called before that is reaped: the watchdog must never kill one
    /// that got the same id later.
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
        // These fail only for a process that is gone.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
