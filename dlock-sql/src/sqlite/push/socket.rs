//! The sockets beside a file: their names, their creation and their removal.
//!
//! A process may die at any point and leave its socket. Others remove a socket only if a connect is
//! refused, which means that no process has it open. Between `bind` and its first answer a new
//! socket looks the same, so [`Socket::bind`] sends a message to itself, and fails if another
//! process has removed it.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::{
        fs::{FileTypeExt as _, MetadataExt as _},
        net::UnixDatagram,
    },
    path::{Path, PathBuf},
};

use super::permissions;

/// The text between the name of the file and the home.
const MARK: &str = "-dlock-";
/// The message of a socket to itself, which tests whether it is reached. It is no notification.
const HELLO: &[u8] = b"hello";

/// Returns the path of the socket of this home.
pub(super) fn path(file: &Path, home: u32) -> PathBuf {
    let mut path = OsString::from(file);
    path.push(format!("{MARK}{home:08x}"));
    path.into()
}

/// The socket of a home. Dropping it removes it from the directory.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) datagrams: UnixDatagram,
    path: PathBuf,
    /// The device and the number of the socket's file.
    id: (u64, u64),
}

impl Socket {
    /// Creates it, and checks that it can be reached.
    pub(super) fn bind(file: &Path, home: u32) -> io::Result<Self> {
        let path = path(file, home);
        let datagrams = UnixDatagram::bind(&path)?;
        // From here on, the drop of `socket` removes it if anything fails.
        let socket = Self { datagrams, id: id(&path)?, path };
        if let Err(error) =
            fs::metadata(file).and_then(|file| permissions::share(&socket.path, &file))
        {
            tracing::debug!(target: "dlock", %error, "notification socket has other permissions than the database");
        }
        socket.datagrams.set_nonblocking(true)?;
        socket.datagrams.send_to(HELLO, &socket.path)?;
        let mut received = [0; HELLO.len()];
        let length = socket.datagrams.recv(&mut received)?;
        match &received[..length] == HELLO {
            true => Ok(socket),
            false => Err(io::Error::other("another message was received")),
        }
    }

    /// Returns whether it is still at its path. It compares device and inode, since another socket
    /// may have taken the path.
    pub(super) fn is_there(&self) -> bool {
        id(&self.path).is_ok_and(|id| id == self.id)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.is_there() {
            remove(&self.path);
        }
    }
}

/// Removes the sockets of dead processes.
pub(super) fn sweep(file: &Path) {
    let (Some(directory), Some(name)) = (file.parent(), file.file_name()) else { return };
    let Ok(probe) = UnixDatagram::unbound() else { return };
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        if is_of(&entry.file_name(), name)
            && let Err(error) = probe.connect(entry.path())
        {
            remove_stale(&entry.path(), &error);
        }
    }
}

/// Removes a socket if this error shows that its process is dead.
pub(super) fn remove_stale(path: &Path, answer: &io::Error) {
    // A connect to a file that is not a socket is refused as well.
    let is_socket = || fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if answer.kind() == io::ErrorKind::ConnectionRefused && is_socket() {
        remove(path);
    }
}

/// Returns whether this is the name of a socket of that file.
fn is_of(name: &std::ffi::OsStr, file: &std::ffi::OsStr) -> bool {
    let rest = name.as_encoded_bytes().strip_prefix(file.as_encoded_bytes());
    rest.and_then(|rest| rest.strip_prefix(MARK.as_bytes())).is_some_and(|home| {
        home.len() == 8 && home.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
    })
}

fn remove(path: &Path) {
    // Another process may have removed it.
    if let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::debug!(target: "dlock", path = %path.display(), %error, "removing a notification socket failed");
    }
}

fn id(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sockets_of_a_file_are_known_by_their_names() {
        let file = Path::new("/x/locks.db");
        let own = path(file, 0xab);
        assert_eq!(own, Path::new("/x/locks.db-dlock-000000ab"));
        let is_of = |name: &str| is_of(name.as_ref(), "locks.db".as_ref());
        assert!(is_of("locks.db-dlock-000000ab"));
        for other in [
            "locks.db",
            "locks.db-wal",
            "locks.db-dlock-",
            "locks.db-dlock-000000a",
            "locks.db-dlock-000000abc",
            "locks.db-dlock-000000AB",
            "locks.db-dlock-000000ab-wal",
            "mylocks.db-dlock-000000ab",
            "locks.dbx-dlock-000000ab",
        ] {
            assert!(!is_of(other), "{other}");
        }
    }
}
