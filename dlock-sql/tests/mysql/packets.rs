//! A server with a small limit for packets.

use dlock_core::{
    AcquireRequest, Acquired, DynBackend, Error, ErrorKind, Released, Renewal, Renewed,
};
use dlock_sql::{Mysql, MysqlConfig};
use dlock_testlab::{
    Stop, Verdict,
    mariadb::{MariadbServer, Options},
};
use sqlx::MySqlPool;

use crate::support::{
    LEASE, SOON, config, connect, exclusive, free, granted, lock, queue, server_with, take,
    with_mariadb,
};

/// Joins the queue, or checks that the refusal names the setting to change.
async fn join(client: &DynBackend, request: &AcquireRequest) -> Result<bool, Stop> {
    match client.acquire(request).await {
        Ok(Acquired::Queued) => Ok(true),
        Ok(other) => Err(Stop::failed(format!("{other:?}"))),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(error.to_string().contains("max_allowed_packet"), "{error}");
            Ok(false)
        }
    }
}

async fn renew(client: &DynBackend, held: &[AcquireRequest]) -> Result<Vec<Renewed>, Error> {
    let renewals: Vec<_> =
        held.iter().map(|held| Renewal::new(held.as_claim(), held.mode, LEASE)).collect();
    client.renew(&renewals).await
}

/// Returns the connections of clients except these.
async fn connections(server: &MariadbServer, before: &[String]) -> Result<Vec<String>, Stop> {
    let ids = "SELECT id FROM information_schema.processlist WHERE user = 'dlock'";
    let ids = server.query(ids).await?.concat();
    Ok(ids.into_iter().filter(|id| !before.contains(id)).collect())
}

/// The server closes a connection on which a statement is too large.
async fn none_was_closed(server: &MariadbServer, used: &[String]) -> Verdict {
    let open = connections(server, &[]).await?;
    assert!(used.iter().all(|id| open.contains(id)), "{used:?} were open, and now {open:?}");
    Ok(())
}

/// If a queue were too long for a statement, its claims could not be renewed or released either.
#[test]
fn a_queue_stays_short_enough_for_a_packet() {
    with_mariadb(async {
        let server = server_with(&Options::new().with_config("max_allowed_packet = 16384")).await?;
        for returning in [true, false] {
            let open = async || Mysql::open(config(&server.url())?.with_returning(returning)).await;
            let clients = [open().await?, open().await?];
            let held = exclusive("n");
            take(&clients[0], &held).await?;
            let (mut waiting, mut refused) = (Vec::new(), 0);
            for n in 0..400 {
                let (client, request) = (&clients[n % 2], exclusive("n"));
                match join(client, &request).await? {
                    true => waiting.push((client, request)),
                    false => refused += 1,
                }
            }
            assert!(waiting.len() > 50 && refused > 50, "{} {refused}", waiting.len());
            // Waiters send heartbeats, and cancelled ones leave the queue.
            for _ in 0..3 {
                for (client, request) in &waiting {
                    renew(client, std::slice::from_ref(request)).await?;
                }
            }
            assert_eq!(renew(&clients[0], std::slice::from_ref(&held)).await?, [Renewed::Kept]);
            free(&clients[0], &held).await?;
            let (client, next) = waiting.remove(0);
            granted(client, &next).await?;
            free(client, &next).await?;
            for (client, request) in &waiting {
                assert_eq!(client.release(&request.as_claim()).await?, Released::Released);
            }
            // For clients whose claims were refused, and for a client that has never read the row.
            for client in [&clients[0], &clients[1], &connect(&server).await?] {
                let request = exclusive("n");
                lock(client, &request).await?;
                free(client, &request).await?;
            }
        }
        Ok(())
    });
}

/// Together these names have more bytes than a packet.
#[test]
fn many_locks_are_renewed_and_read_in_packets() {
    with_mariadb(async {
        let server = server_with(&Options::new().with_config("max_allowed_packet = 16384")).await?;
        for returning in [true, false] {
            let before = connections(&server, &[]).await?;
            let patient = config(&server.url())?.with_response_timeout(SOON);
            let client = Mysql::open(patient.clone().with_returning(returning)).await?;
            let other = Mysql::open(patient).await?;
            let held: Vec<_> =
                (0..150).map(|n| exclusive(&format!("a lock of many, {n:060}"))).collect();
            for held in &held {
                take(&client, held).await?;
            }
            renew(&client, &held[..1]).await?;
            other.inspect(&held[0].name).await?;
            let used = connections(&server, &before).await?;
            // Often enough that each row is folded.
            for _ in 0..8 {
                let renewed = renew(&client, &held).await?;
                assert!(renewed.iter().all(|renewed| *renewed == Renewed::Kept), "{renewed:?}");
            }
            let waiting: Vec<_> = held.iter().map(|held| exclusive(held.name.as_str())).collect();
            for waiting in &waiting {
                assert!(join(&other, waiting).await?);
            }
            // All wait at once, so the client reads many rows at once.
            let mut tasks = Vec::new();
            for waiting in &waiting {
                let (other, waiting) = (other.clone(), waiting.clone());
                tasks.push(tokio::spawn(async move { granted(&other, &waiting).await }));
            }
            for held in &held {
                free(&client, held).await?;
            }
            for (task, waiting) in tasks.into_iter().zip(&waiting) {
                task.await??;
                free(&other, waiting).await?;
            }
            none_was_closed(&server, &used).await?;
        }
        Ok(())
    });
}

/// Each connection keeps the limit that was set when it was opened.
#[test]
fn a_limit_that_changes_holds_for_new_connections() {
    with_mariadb(async {
        let server = server_with(&Options::new()).await?;
        let (other, pool) = (connect(&server).await?, MySqlPool::connect_lazy(&server.url())?);
        for client in [
            Mysql::open(config(&server.url())?).await?,
            Mysql::open(config(&server.url())?.with_returning(false)).await?,
            Mysql::open(MysqlConfig::from_pool(pool.clone())?).await?,
        ] {
            server.run_sql("SET GLOBAL max_allowed_packet = 16777216").await?;
            server.terminate_backends().await?;
            let held: Vec<_> =
                (0..150).map(|n| exclusive(&format!("a lock of many, {n:030}"))).collect();
            for held in &held {
                take(&client, held).await?;
            }
            server.run_sql("SET GLOBAL max_allowed_packet = 16384").await?;
            server.terminate_backends().await?;
            for _ in 0..8 {
                let renewed = renew(&client, &held).await?;
                assert!(renewed.iter().all(|renewed| *renewed == Renewed::Kept), "{renewed:?}");
            }
            for held in &held {
                assert!(other.inspect(&held.name).await?.holders.len() == 1);
                free(&client, held).await?;
            }
        }
        Ok(())
    });
}

/// A client that connected before the limit was lowered lets more claims wait than fit now.
#[test]
fn queue_longer_than_a_packet_stops_no_renewal() {
    with_mariadb(async {
        let server = server_with(&Options::new()).await?;
        for returning in [true, false] {
            let large = Mysql::open(config(&server.url())?.with_connections(1)).await?;
            let lasts = |name| exclusive(name).with_lease(LEASE * 10);
            let held = ["a", "b"].map(lasts);
            for held in &held {
                take(&large, held).await?;
            }
            let waiting: Vec<_> = (0..700).map(|n| lasts(["a", "b"][n % 2])).collect();
            for waiting in &waiting {
                queue(&large, waiting).await?;
            }
            // The limit applies to new connections.
            server.run_sql("SET GLOBAL max_allowed_packet = 16384").await?;
            let before = connections(&server, &[]).await?;
            let patient = config(&server.url())?.with_response_timeout(SOON);
            let small = Mysql::open(patient.with_returning(returning)).await?;
            renew(&small, &held).await?;
            let used = connections(&server, &before).await?;
            // Both rows are folded by one statement, and later one row alone.
            for _ in 0..40 {
                assert_eq!(renew(&small, &held).await?, [Renewed::Kept; 2]);
            }
            for _ in 0..40 {
                assert_eq!(renew(&small, &held[..1]).await?, [Renewed::Kept]);
            }
            none_was_closed(&server, &used).await?;
            for (held, next) in held.iter().zip(&waiting) {
                free(&small, held).await?;
                granted(&large, next).await?;
            }
            for waiting in &waiting {
                assert_eq!(large.release(&waiting.as_claim()).await?, Released::Released);
            }
            server.run_sql("SET GLOBAL max_allowed_packet = 16777216").await?;
        }
        Ok(())
    });
}
