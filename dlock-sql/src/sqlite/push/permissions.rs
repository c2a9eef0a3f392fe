//! The permissions of a socket, which decide who may send to it.

use std::{fs::Metadata, io, path::Path};

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
