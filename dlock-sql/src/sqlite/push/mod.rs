//! Notifications between engines over one file: a datagram to the socket of the waiter's engine.
//!
//! ```text
//! locks.db                    the file
//! locks.db-dlock-0a1b2c3d     the socket of the engine whose home is 0x0a1b2c3d
//! ```
//! A socket receives notifications of grants, one in each datagram. It has the permissions of the
//! file, so that only users of the locks can send. An engine removes its socket at its end. The
//! socket of a killed process stays and refuses connections. The next process that opens the file,
//! or sends to that socket, removes it. Each of these steps is one system call that does not block.
//!
//! A notification may always be lost: the path may be too long for a socket, a queue may be full,
//! or the other process may not see the same directory. The waiter then polls the file. So an error
//! only makes the waiters poll more often.

mod socket;

use std::{
    io,
    os::unix::net,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

use dlock_core::{Error, ErrorKind, LockName};
use tokio::net::UnixDatagram;

use self::socket::{Socket, path, remove_stale};
use crate::engine::{Listener, Notification};

/// The longest notification: five numbers, and the name.
const LONGEST: usize = 256 + LockName::MAX_BYTES;
/// The number of homes that are tried.
const TRIES: usize = 3;

/// Opens a listener, if the system has such sockets, and returns its home. First removes the
/// sockets of dead processes.
pub(super) async fn listener(file: &Path) -> Option<(SqliteListener, u32)> {
    let path = file.to_owned();
    // Reading a directory may block for long.
    let opened = tokio::task::spawn_blocking(move || {
        socket::sweep(&path);
        open_listener(&path)
    });
    let why = match opened.await {
        Ok(Ok(listener)) => return Some(listener),
        Ok(Err(error)) => error,
        // The runtime shuts down.
        Err(error) => error.into(),
    };
    tracing::debug!(target: "dlock", error = %why, "notifications unavailable, falling back to polling");
    None
}

/// Receives the notifications to one home.
#[derive(Debug)]
pub(in crate::sqlite) struct SqliteListener {
    file: PathBuf,
    home: u32,
    open: Option<Open>,
    buffer: Box<[u8]>,
}

/// The fields are dropped in this order: the runtime's handle of the socket before the socket.
#[derive(Debug)]
struct Open {
    datagrams: UnixDatagram,
    socket: Socket,
}

/// Opens a listener with a new home.
fn open_listener(file: &Path) -> io::Result<(SqliteListener, u32)> {
    let mut tries = 0;
    loop {
        tries += 1;
        let home = rand::random_range(1..=u32::MAX);
        match Open::new(file, home) {
            Ok(open) => {
                let buffer = vec![0; LONGEST].into();
                let listener =
                    SqliteListener { file: file.to_owned(), home, open: Some(open), buffer };
                return Ok((listener, home));
            }
            Err(error) if tries == TRIES || !may_pass(&error) => return Err(error),
            Err(_) => {}
        }
    }
}

/// Returns whether another home may work. This one is in use, or another process has removed the
/// socket as a dead one, between its creation and its first answer.
fn may_pass(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::NotFound)
}

impl Open {
    fn new(file: &Path, home: u32) -> io::Result<Self> {
        let socket = Socket::bind(file, home)?;
        let datagrams = socket.datagrams.try_clone()?;
        // tokio panics if its runtime has no I/O, and offers no way to check before.
        let datagrams = catch_unwind(AssertUnwindSafe(|| UnixDatagram::from_std(datagrams)))
            .map_err(|_| io::Error::other("the tokio runtime has no I/O: call enable_io()"))??;
        Ok(Self { datagrams, socket })
    }
}

impl Listener for SqliteListener {
    fn is_open(&self) -> bool {
        self.open.is_some()
    }

    async fn open(&mut self) -> Result<(), Error> {
        // If the socket is still in its place, a new one would not be reached any better, and would
        // lose the notifications in the queue of this one.
        if self.open.as_ref().is_some_and(|open| open.socket.is_there()) {
            return Ok(());
        }
        self.open = None;
        self.open = Some(Open::new(&self.file, self.home).map_err(lost)?);
        Ok(())
    }

    async fn next(&mut self) -> Result<String, Error> {
        loop {
            let Some(open) = &self.open else {
                return Err(lost(io::ErrorKind::NotConnected.into()));
            };
            match open.datagrams.recv(&mut self.buffer).await {
                Ok(length) => {
                    // Other data is not from dlock.
                    if let Ok(text) = std::str::from_utf8(&self.buffer[..length]) {
                        return Ok(text.to_owned());
                    }
                }
                Err(error) => {
                    self.open = None;
                    return Err(lost(error));
                }
            }
        }
    }
}

fn lost(error: io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "no notification can arrive: waiters poll")
        .with_source(error)
}

/// Sends notifications to the other engines over a file.
#[derive(Debug)]
pub(in crate::sqlite) struct Notifier {
    file: PathBuf,
    /// It never blocks: a slow receiver must not delay a release.
    datagrams: net::UnixDatagram,
}

impl Notifier {
    /// Creates a sender for this file. Returns `None` if the system has no such sockets.
    pub(in crate::sqlite) fn new(file: &Path) -> Option<Self> {
        let datagrams = || {
            let datagrams = net::UnixDatagram::unbound()?;
            datagrams.set_nonblocking(true)?;
            Ok::<_, io::Error>(datagrams)
        };
        let datagrams = datagrams()
            .inspect_err(|error| tracing::debug!(target: "dlock", %error, "no notification socket"))
            .ok()?;
        Some(Self { file: file.to_owned(), datagrams })
    }

    /// Sends each notification to its engine. If a waiter gets none, it finds its grant in the
    /// file.
    pub(in crate::sqlite) fn notify(&self, notifications: &[Notification]) {
        for notification in notifications {
            // The home chooses the socket, so no connection is kept for each receiver.
            let path = path(&self.file, notification.granted.home);
            if let Err(error) = self.datagrams.send_to(notification.to_string().as_bytes(), &path) {
                tracing::debug!(target: "dlock", %error, "notifying a waiter failed");
                // Also removes the socket if its process is dead, so that nobody sends to it again.
                remove_stale(&path, &error);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dlock_core::{
        AcquireRequest, Acquired, ClaimId, DynBackend, FencingToken, LockName, Mode,
        machine::Granted,
    };
    use tempfile::TempDir;
    use tokio::time::timeout;

    use super::*;
    use crate::{Sqlite, SqliteConfig, engine::Rarely};

    /// A long lease, so that no claim sends a heartbeat during a test.
    const LEASE: Duration = Duration::from_secs(3600);
    /// Longer than any step here takes, however busy the machine is.
    const LONG: Duration = Duration::from_secs(60);

    struct Store {
        dir: TempDir,
    }

    impl Store {
        fn new() -> Self {
            Self { dir: tempfile::tempdir().unwrap() }
        }

        fn path(&self) -> PathBuf {
            self.dir.path().canonicalize().unwrap().join("locks.db")
        }

        /// Opens an engine that polls the file this rarely.
        async fn open(&self, rarely: Rarely) -> DynBackend {
            let config = SqliteConfig::new(self.path()).with_create_schema(true);
            Sqlite::start(config, rarely).await.unwrap()
        }

        /// Opens a listener beside the file. Returns both.
        async fn listen(&self) -> (PathBuf, SqliteListener, u32) {
            let file = self.path();
            std::fs::write(&file, "").unwrap();
            let (listener, home) = listener(&file).await.unwrap();
            (file, listener, home)
        }

        fn sockets(&self) -> Vec<PathBuf> {
            let entries = std::fs::read_dir(self.dir.path().canonicalize().unwrap()).unwrap();
            let paths = entries.map(|entry| entry.unwrap().path());
            paths.filter(|path| path.to_str().unwrap().contains("-dlock-")).collect()
        }
    }

    fn request() -> AcquireRequest {
        AcquireRequest::new(LockName::new("x").unwrap(), Mode::Exclusive, LEASE)
    }

    async fn take(client: &DynBackend) -> (AcquireRequest, FencingToken) {
        let request = request();
        match client.acquire(&request).await.unwrap() {
            Acquired::Granted(grant) => (request, grant.token),
            other => panic!("{other:?}"),
        }
    }

    /// Makes `one` release the lock to `other`, which waits for it.
    async fn hand_off(one: &DynBackend, other: &DynBackend) {
        let (held, token) = take(one).await;
        let wanted = request();
        assert_eq!(other.acquire(&wanted).await.unwrap(), Acquired::Queued);
        // A new listener makes the reader poll once. The reader serves its requests one after the
        // other, and that poll first: so the poll is over when it has answered a second request.
        for _ in 0..2 {
            other.inspect(&wanted.name).await.unwrap();
        }
        one.release(&held.as_claim()).await.unwrap();
        let grant = timeout(LONG, other.granted(&wanted)).await.expect("no notification").unwrap();
        assert!(grant.token > token);
        other.release(&wanted.as_claim()).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_waiter_is_notified_without_polling() {
        let store = Store::new();
        let (one, other) = (store.open(Rarely::NEVER).await, store.open(Rarely::NEVER).await);
        assert_eq!(store.sockets().len(), 2);
        hand_off(&one, &other).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_notifier_removes_a_dead_socket() {
        let store = Store::new();
        let one = store.open(Rarely::FILE).await;
        let [ours] = &store.sockets()[..] else { panic!("{:?}", store.sockets()) };
        let other = store.open(Rarely::FILE).await;
        let theirs = store.sockets().into_iter().find(|path| path != ours).unwrap();
        std::fs::remove_file(&theirs).unwrap();
        drop(std::os::unix::net::UnixDatagram::bind(&theirs).unwrap());
        let dead = std::fs::symlink_metadata(&theirs).unwrap();
        // The listeners check, find that no notification arrived, and create a new socket.
        let id = |found: std::fs::Metadata| {
            use std::os::unix::fs::MetadataExt;
            (found.ino(), found.ctime_nsec())
        };
        let dead = id(dead);
        let renewed = async {
            while std::fs::symlink_metadata(&theirs).map(id).map_or(true, |now| now == dead) {
                hand_off(&one, &other).await;
            }
        };
        timeout(LONG, renewed).await.expect("never made anew");
        hand_off(&other, &one).await;
    }

    fn notification_to(home: u32) -> Notification {
        let granted = Granted { claim: ClaimId::random(), token: 7, block: 1, since: 5, home };
        Notification { name: request().name, granted, expiry: 8 }
    }

    async fn receives(listener: &mut SqliteListener, notification: &Notification) {
        let received = timeout(LONG, listener.next()).await.expect("no notification");
        assert_eq!(received.unwrap(), notification.to_string());
    }

    #[tokio::test]
    async fn a_reachable_listener_stays_open() {
        let store = Store::new();
        let (file, mut listener, home) = store.listen().await;
        let notification = notification_to(home);
        Notifier::new(&file).unwrap().notify(std::slice::from_ref(&notification));
        listener.open().await.unwrap();
        receives(&mut listener, &notification).await;

        std::fs::remove_file(path(&file, home)).unwrap();
        listener.open().await.unwrap();
        Notifier::new(&file).unwrap().notify(std::slice::from_ref(&notification));
        receives(&mut listener, &notification).await;
        drop(listener);
        assert!(store.sockets().is_empty());
    }

    #[tokio::test]
    async fn a_socket_of_another_process_is_not_removed() {
        let store = Store::new();
        let (file, listener, home) = store.listen().await;
        std::fs::rename(path(&file, home), file.with_extension("away")).unwrap();
        let other = std::os::unix::net::UnixDatagram::bind(path(&file, home)).unwrap();
        drop(listener);
        assert_eq!(store.sockets(), [path(&file, home)]);
        drop(other);
        socket::sweep(&file);
        assert!(store.sockets().is_empty());
    }

    #[tokio::test]
    async fn a_full_socket_queue_delays_no_sender() {
        let store = Store::new();
        let (file, mut listener, home) = store.listen().await;
        let notification = notification_to(home);
        // More than any system queues.
        Notifier::new(&file).unwrap().notify(&vec![notification.clone(); 10_000]);
        receives(&mut listener, &notification).await;
        assert!(path(&file, home).exists());
    }
}
