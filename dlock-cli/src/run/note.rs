//! The note that identifies the run that holds a lock.

use std::{ffi::OsStr, path::Path};

use dlock::admin::Note;

/// The number of characters of the host name that are kept, so that the rest has room.
const HOST: usize = 64;

/// Returns the note `web-3 pid 4711 migrate.sh`: the host, this process, and the program's name. It
/// leaves out the arguments, which may contain secrets.
pub(super) fn note(program: &OsStr) -> Option<Note> {
    let host = rustix::system::uname();
    text(&host.nodename().to_string_lossy(), std::process::id(), program)
}

fn text(host: &str, pid: u32, program: &OsStr) -> Option<Note> {
    let host: String = host.chars().take(HOST).collect();
    let name = Path::new(program).file_name().unwrap_or(program);
    Note::fitted(&format!("{host} pid {pid} {}", name.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_has_the_host_the_process_and_the_program() {
        let note = |host: &str, program: &str| text(host, 7, program.as_ref()).unwrap().to_string();
        assert_eq!(note("web-3", "migrate"), "web-3 pid 7 migrate");
        assert_eq!(note("web-3", "/secret/path/./migrate.sh"), "web-3 pid 7 migrate.sh");
        assert_eq!(note("web-3", "a\nb"), "web-3 pid 7 ab");
        let long = note(&"h".repeat(255), &"é".repeat(255));
        assert!(long.starts_with(&format!("{} pid 7 éé", "h".repeat(64))), "{long}");
        assert!(long.len() <= Note::MAX_BYTES);
    }
}
