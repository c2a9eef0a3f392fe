//! Many tasks at once: holders never overlap, and no collision in the database reaches a caller.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use dlock_core::{Acquired, DynBackend};
use dlock_testlab::{Stop, Verdict, mariadb::Options};
use tokio::task::JoinSet;

use crate::support::{
    connect, connect_plainly, exclusive, free, granted, lock, name, server, server_with,
    with_mariadb,
};

/// The resource that a lock protects.
#[derive(Default)]
struct Guarded {
    taken: AtomicBool,
    token: AtomicU64,
}

impl Guarded {
    fn enter(&self, token: u64) {
        assert!(!self.taken.swap(true, Ordering::SeqCst), "two are in");
        let before = self.token.swap(token, Ordering::SeqCst);
        assert!(token > before, "{token} after {before}");
    }

    fn leave(&self) {
        self.taken.store(false, Ordering::SeqCst);
    }
}

/// Runs tasks of these clients that acquire some locks, one or two at a time.
async fn crowd(clients: &[DynBackend], tasks: usize, locks: usize, rounds: usize) -> Verdict {
    let guarded: Arc<Vec<Guarded>> = Arc::new((0..locks).map(|_| Guarded::default()).collect());
    let mut all = JoinSet::new();
    for task in 0..tasks {
        let (client, guarded) = (clients[task % clients.len()].clone(), guarded.clone());
        all.spawn(async move {
            for round in 0..rounds {
                let first = (task + round) % locks;
                one(&client, &guarded, first).await?;
                two(&client, &guarded, [(first + 3) % locks, first]).await?;
            }
            Ok(())
        });
    }
    all.join_all().await.into_iter().collect()
}

async fn one(client: &DynBackend, guarded: &[Guarded], at: usize) -> Verdict {
    let request = exclusive(&format!("lock {at}"));
    let grant = lock(client, &request).await?;
    guarded[at].enter(grant.token.get());
    tokio::task::yield_now().await;
    guarded[at].leave();
    free(client, &request).await
}

async fn two(client: &DynBackend, guarded: &[Guarded], at: [usize; 2]) -> Verdict {
    if at[0] == at[1] {
        return Ok(());
    }
    let requests = at.map(|at| exclusive(&format!("lock {at}")));
    let answers = client.acquire_all(&requests).expect("known").await?;
    for ((request, answer), &at) in requests.iter().zip(answers).zip(&at) {
        let grant = match answer {
            Acquired::Granted(grant) => grant,
            Acquired::Queued => granted(client, request).await?,
            other => return Err(Stop::failed(format!("{other:?}"))),
        };
        guarded[at].enter(grant.token.get());
    }
    for (request, &at) in requests.iter().zip(&at) {
        guarded[at].leave();
        free(client, request).await?;
    }
    Ok(())
}

#[test]
fn many_tasks_on_several_locks() {
    with_mariadb(async {
        let server = server().await?;
        let mut clients = Vec::new();
        for _ in 0..4 {
            clients.push(connect(&server).await?);
        }
        crowd(&clients, 32, 7, 6).await
    });
}

#[test]
fn many_tasks_without_returning() {
    with_mariadb(async {
        let server = server().await?;
        let mut clients = Vec::new();
        for _ in 0..4 {
            clients.push(connect_plainly(&server).await?);
        }
        crowd(&clients, 24, 1, 10).await?;
        crowd(&clients, 24, 5, 5).await
    });
}

#[test]
fn new_names_do_not_collide() {
    with_mariadb(async {
        let server =
            server_with(&Options::new().with_config("innodb_print_all_deadlocks = 1")).await?;
        let mut tasks = JoinSet::new();
        for client in 0..4 {
            let backend = connect(&server).await?;
            tasks.spawn(async move {
                for round in 0..40 {
                    // The names of the tasks interleave, so that each task inserts rows between
                    // those of the others.
                    let requests: Vec<_> =
                        (0..20).map(|n| exclusive(&format!("{round} {n} {client}"))).collect();
                    for answer in backend.acquire_all(&requests).expect("known").await? {
                        assert!(matches!(answer, Acquired::Granted(_)), "{answer:?}");
                    }
                }
                Ok(())
            });
        }
        tasks.join_all().await.into_iter().collect::<Verdict>()?;
        let client = connect(&server).await?;
        assert_eq!(client.inspect(&name("7 7 3")).await?.holders.len(), 1);
        Ok(())
    });
}
