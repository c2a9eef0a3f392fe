//! A server that takes small packets only.

use dlock_core::{
    AcquireRequest, Acquired, DynBackend, Error, ErrorKind, Released, Renewal, Renewed,
};
use dlock_sql::{Mysql, MysqlConfig};
use dlock_testlab::{Stop, mariadb::Options};
use sqlx::MySqlPool;

use crate::help::{
    LEASE, ask, config, connect, free, granted, lock, server_with, take, with_mariadb,
};

/// Joins the queue, or is refused with the setting to change.
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

/// A queue that no statement could replace any more would let nobody renew or release either.
#[test]
fn a_queue_stays_short_enough_for_a_packet() {
    with_mariadb(async {
        let server = server_with(&Options::new().with_config("max_allowed_packet = 16384")).await?;
        for returning in [true, false] {
            let open = async || Mysql::open(config(&server.url())?.with_returning(returning)).await;
            let clients = [open().await?, open().await?];
            let held = ask("n");
            take(&clients[0], &held).await?;
            let (mut waiting, mut refused) = (Vec::new(), 0);
            for n in 0..400 {
                let (client, request) = (&clients[n % 2], ask("n"));
                match join(client, &request).await? {
                    true => waiting.push((client, request)),
                    false => refused += 1,
                }
            }
            assert!(waiting.len() > 50 && refused > 50, "{} {refused}", waiting.len());
            // Those who wait give signs of life, and those who do not want any more go.
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
            // For those who were refused, and for those who have never seen it.
            for client in [&clients[0], &clients[1], &connect(&server).await?] {
                let request = ask("n");
                lock(client, &request).await?;
                free(client, &request).await?;
            }
        }
        Ok(())
    });
}

/// Together they have more bytes than a packet.
#[test]
fn many_locks_are_renewed_and_read_in_packets() {
    with_mariadb(async {
        let server = server_with(&Options::new().with_config("max_allowed_packet = 16384")).await?;
        for returning in [true, false] {
            let client = Mysql::open(config(&server.url())?.with_returning(returning)).await?;
            let other = connect(&server).await?;
            let held: Vec<_> = (0..150).map(|n| ask(&format!("a lock of many, {n:030}"))).collect();
            for held in &held {
                take(&client, held).await?;
            }
            // Often enough for each row to be folded.
            for _ in 0..8 {
                let renewed = renew(&client, &held).await?;
                assert!(renewed.iter().all(|renewed| *renewed == Renewed::Kept), "{renewed:?}");
            }
            let waiting: Vec<_> = held.iter().map(|held| ask(held.name.as_str())).collect();
            for waiting in &waiting {
                assert!(join(&other, waiting).await?);
            }
            for (held, waiting) in held.iter().zip(&waiting) {
                free(&client, held).await?;
                granted(&other, waiting).await?;
                free(&other, waiting).await?;
            }
        }
        Ok(())
    });
}

/// Each connection keeps the limit that there was when it was made.
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
            let held: Vec<_> = (0..150).map(|n| ask(&format!("a lock of many, {n:030}"))).collect();
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
