//! Notifications to waiters of other processes through sockets beside the file.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::{
        fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, chown},
        net::UnixDatagram,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use dlock_core::{DynBackend, WakeUp};
use dlock_sql::{Sqlite, SqliteConfig};

use crate::support::{LONG, Store, exclusive, free, granted, queue, take};

/// Names the file to the process that is killed.
const FILE: &str = "DLOCK_TEST_PUSH_FILE";

fn sockets(file: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(file.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_str().unwrap().contains("-dlock-"))
        .collect();
    paths.sort();
    paths
}

async fn until_gone(file: &Path) {
    let gone = async {
        while !sockets(file).is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, gone).await.expect("a socket stays");
}

async fn hands_over(a: &DynBackend, b: &DynBackend) {
    let (first, second) = (exclusive("x"), exclusive("x"));
    take(a, &first).await;
    queue(b, &second).await;
    free(a, &first).await;
    granted(b, &second).await;
    free(b, &second).await;
}

#[tokio::test]
async fn a_closed_client_leaves_nothing() {
    let store = Store::new();
    let (a, b) = (store.open().await, store.open().await);
    assert_eq!(a.guarantees().wake_up, WakeUp::Push);
    assert_eq!(sockets(&store.path()).len(), 2);
    hands_over(&a, &b).await;
    drop((a, b));
    until_gone(&store.path()).await;
}

#[test]
fn nothing_is_left_by_a_runtime_that_ends() {
    let store = Store::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = runtime.block_on(store.open());
    assert_eq!(sockets(&store.path()).len(), 1);
    drop(runtime);
    assert!(sockets(&store.path()).is_empty());
    drop(client);
}

/// The other process of the test below. Without that test, it does nothing.
#[tokio::test]
#[ignore = "it is started by another test"]
async fn a_process_that_is_killed() {
    let Some(file) = std::env::var_os(FILE) else { return };
    let client = Sqlite::open(SqliteConfig::new(file)).await.unwrap();
    println!("open");
    std::io::stdout().flush().unwrap();
    // If it is not killed, it ends with the test.
    let _ = std::io::stdin().read_line(&mut String::new());
    drop(client);
}

#[tokio::test]
async fn leftovers_of_a_killed_process_are_removed_at_next_open() {
    let store = Store::new();
    drop(store.open().await);
    until_gone(&store.path()).await;
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "push::a_process_that_is_killed", "--ignored", "--nocapture"])
        .env(FILE, store.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let is_open = lines.map_while(Result::ok).any(|line| line.ends_with("open"));
    let alive = sockets(&store.path());
    // Another open does not remove the sockets of live processes.
    drop(store.open().await);
    let spared = alive.iter().all(|path| path.exists());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(is_open && spared);
    assert_eq!(alive.len(), 1);
    assert!(alive[0].exists(), "it could not be removed by who was killed");
    let client = store.open().await;
    assert!(!alive[0].exists());
    assert_eq!(client.guarantees().wake_up, WakeUp::Push);
}

#[tokio::test]
async fn only_dead_sockets_of_this_file_are_removed() {
    let store = Store::new();
    let with = |end: &str| PathBuf::from(format!("{}{end}", store.path().display()));
    let bind = |path: &Path| UnixDatagram::bind(path).unwrap();
    let alive = (with("-dlock-00000001"), bind(&with("-dlock-00000001")));
    let other_file = store.path().with_file_name("other.db-dlock-00000001");
    drop((bind(&with("-dlock-00000002")), bind(&with("-dlock-2")), bind(&other_file)));
    fs::write(with("-dlock-00000003"), "no socket").unwrap();
    let client = store.open().await;
    assert!(!with("-dlock-00000002").exists());
    for stays in [&alive.0, &with("-dlock-2"), &with("-dlock-00000003"), &other_file] {
        assert!(stays.exists(), "{}", stays.display());
    }
    drop(client);
}

#[tokio::test]
async fn waiters_poll_where_no_socket_can_be_created() {
    let store = Store::new();
    let directory = store.path().with_file_name("long".repeat(30));
    fs::create_dir(&directory).unwrap();
    let config = SqliteConfig::new(directory.join("locks.db")).with_create_schema(true);
    let a = Sqlite::open(config.clone()).await.unwrap();
    let b = Sqlite::open(config).await.unwrap();
    assert_eq!(a.guarantees().wake_up, WakeUp::Poll);
    assert!(sockets(&directory.join("locks.db")).is_empty());
    hands_over(&a, &b).await;
}

#[test]
fn waiters_poll_in_a_runtime_without_io() {
    let store = Store::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let (a, b) = (store.open().await, store.open().await);
        assert_eq!(a.guarantees().wake_up, WakeUp::Poll);
        assert!(sockets(&store.path()).is_empty());
        hands_over(&a, &b).await;
    });
}

#[tokio::test]
async fn foreign_notifications_are_ignored() {
    let store = Store::new();
    let (a, b) = (store.open().await, store.open().await);
    let (held, waiting) = (exclusive("x"), exclusive("x"));
    let first = take(&a, &held).await.token;
    queue(&b, &waiting).await;
    let stranger = UnixDatagram::unbound().unwrap();
    let forged = [
        b"".to_vec(),
        b"x".to_vec(),
        b"\xff\xff".to_vec(),
        vec![b'1'; 5000],
        b"00000000000000000000000000000000 1 1 1 1 x".to_vec(),
        format!("{} 1 1 1 1 x", held.claim).into_bytes(),
        format!("{} 9 1 1 1 y", exclusive("y").claim).into_bytes(),
    ];
    for path in sockets(&store.path()) {
        for note in &forged {
            stranger.send_to(note, &path).unwrap();
        }
    }
    free(&a, &held).await;
    let grant = granted(&b, &waiting).await;
    assert!(grant.token > first);
    let state = b.inspect(&waiting.name).await.unwrap();
    assert_eq!(state.holders[0].token, Some(grant.token));
    free(&b, &waiting).await;
    hands_over(&b, &a).await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_socket_has_the_rights_of_the_file() {
    let store = Store::new();
    drop(store.open().await);
    until_gone(&store.path()).await;
    fs::set_permissions(store.path(), fs::Permissions::from_mode(0o660)).unwrap();
    // Only root can change the owner of a file.
    let _ = chown(store.path(), Some(12345), Some(12346));
    let client = store.open().await;
    let rights = |path: &Path| {
        let found = fs::symlink_metadata(path).unwrap();
        (found.mode() & 0o777, found.uid(), found.gid())
    };
    let [socket] = &sockets(&store.path())[..] else { panic!() };
    assert!(fs::symlink_metadata(socket).unwrap().file_type().is_socket());
    assert_eq!(rights(socket), rights(&store.path()));
    drop(client);
}
