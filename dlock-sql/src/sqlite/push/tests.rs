use std::{path::PathBuf, time::Duration};

use dlock_core::{
    AcquireRequest, Acquired, ClaimId, DynBackend, FencingToken, LockName, Mode, machine::Granted,
};
use tempfile::TempDir;
use tokio::time::timeout;

use super::{socket::path, *};
use crate::{
    Sqlite, SqliteConfig,
    engine::{Listener as _, Notification, Rarely},
};

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
