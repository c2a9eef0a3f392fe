//! The sockets beside a file: their names, their creation and their removal.
//!
//! A process may die at any point and leave its socket. Others remove a socket only if a connect is
//! refused, which means that no process has it open. Between `bind` and its first answer a new
//! socket looks the same, so [`Socket::bind`] sends a message to itself, and fails if another
//! process has removed it.

use std::{
    ffi::OsString,
    fs,
    fs::Metadata,
    io,
    os::unix::{
        fs::{FileTypeExt as _, MetadataExt as _},
        net::UnixDatagram,
    },
    path::{Path, PathBuf},
};

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
        if let Err(error) = fs::metadata(file).and_then(|file| share(&socket.path, &file)) {
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

/// Gives a socket the rights and the group of the file, and its owner if this user may, as SQLite
/// does with the files that it creates.
#[cfg(target_os = "linux")]
pub(super) fn share(socket: &Path, file: &Metadata) -> io::Result<()> {
    use std::{
        fs::{self, File, Permissions},
        os::{
            fd::AsRawFd as _,
            unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, chown},
        },
    };

    use rustix::fs::{Mode, OFlags};

    // By handle, not by name. If other users may write to the directory, they could replace the
    // socket by a link between two calls, and this would change the permissions of another file.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = File::from(rustix::fs::open(socket, flags, Mode::empty())?);
    let found = handle.metadata()?;
    if !found.file_type().is_socket() {
        return Err(io::Error::other("somebody has replaced the socket"));
    }
    let handle_path = format!("/proc/self/fd/{}", handle.as_raw_fd());
    if (found.uid(), found.gid()) != (file.uid(), file.gid())
        && chown(&handle_path, Some(file.uid()), Some(file.gid())).is_err()
        && let Err(error) = chown(&handle_path, None, Some(file.gid()))
    {
        tracing::debug!(target: "dlock", %error, "notification socket has another group than the database");
    }
    if found.mode() & RIGHTS != file.mode() & RIGHTS {
        fs::set_permissions(&handle_path, Permissions::from_mode(file.mode() & RIGHTS))?;
    }
    Ok(())
}

#[cfg(target_os = "linux")]
const RIGHTS: u32 = 0o777;

/// Keeps the permissions that the system has set: they can't be changed safely here.
#[cfg(not(target_os = "linux"))]
pub(super) fn share(_: &Path, _: &Metadata) -> io::Result<()> {
    Ok(())
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
