//! A server without free memory: existing claims can still be renewed and released.

use dlock_core::{ErrorKind, Mode, Renewal, Renewed};
use dlock_testlab::{Verdict, redis::RedisServer};
use tokio::time::sleep;

use crate::support::{
    ask, attempt, brief, connect, exclusive, free, granted, millis, queue, renew, run, says, start,
    take,
};

async fn fill(server: &RedisServer) -> Verdict {
    server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await?.ok()?;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]).await?.ok()?;
    Ok(())
}

#[test]
fn every_kind_of_holder_is_renewed_without_memory() {
    run(async {
        let server = start().await?;
        let client = connect(&server.url()).await?;
        let mut held = Vec::new();
        for (name, mode) in
            [("a", Mode::Exclusive), ("b", Mode::Shared), ("c", Mode::permits(2, 3)?)]
        {
            let lease = millis(6000);
            let request = ask(name, mode).with_lease(lease);
            take(&client, &request).await?;
            held.push(request);
        }
        fill(&server).await?;
        for _ in 0..5 {
            sleep(millis(1500)).await;
            assert_eq!(renew(&client, &held).await?, [Renewed::Kept; 3]);
        }
        for request in &held {
            assert_eq!(client.inspect(&request.name).await?.holders.len(), 1);
            free(&client, request).await?;
            assert!(client.inspect(&request.name).await?.is_free());
        }
        Ok(())
    });
}

#[test]
fn every_kind_of_waiter_is_granted_on_a_server_without_memory() {
    run(async {
        let server = start().await?;
        let (one, two) = (connect(&server.url()).await?, connect(&server.url()).await?);
        for (name, holds, waits) in [
            ("a", Mode::Exclusive, Mode::Exclusive),
            ("b", Mode::Exclusive, Mode::Shared),
            ("c", Mode::Shared, Mode::Exclusive),
            ("d", Mode::permits(2, 3)?, Mode::permits(3, 3)?),
        ] {
            let (held, last) = (ask(name, holds), ask(name, waits));
            let waiting = ask(name, waits).with_lease(millis(3000));
            take(&one, &held).await?;
            queue(&two, &waiting).await?;
            queue(&one, &last).await?;
            fill(&server).await?;
            // Longer than the lease: polls keep the claim alive.
            let release = async {
                sleep(millis(3400)).await;
                free(&one, &held).await
            };
            let (grant, released) = tokio::join!(granted(&two, &waiting), release);
            released?;
            grant?;
            free(&two, &waiting).await?;
            granted(&one, &last).await?;
            free(&one, &last).await?;
            assert!(one.inspect(&last.name).await?.is_free());
            server.command(&["CONFIG", "SET", "maxmemory", "0"]).await?.ok()?;
        }
        Ok(())
    });
}

#[test]
fn a_downgrade_without_memory_grants_to_readers() {
    run(async {
        let server = start().await?;
        let (one, two) = (connect(&server.url()).await?, connect(&server.url()).await?);
        let (held, reader) = (exclusive("a"), ask("a", Mode::Shared));
        take(&one, &held).await?;
        queue(&two, &reader).await?;
        fill(&server).await?;
        let weaker = Renewal::new(held.as_claim(), Mode::Shared, held.lease);
        assert_eq!(one.renew(&[weaker]).await?, [Renewed::Kept]);
        granted(&two, &reader).await?;
        free(&one, &held).await?;
        free(&two, &reader).await
    });
}

#[test]
fn a_refused_acquire_without_memory_leaves_nothing() {
    run(async {
        let server = start().await?;
        let client = connect(&server.url()).await?;
        let held = exclusive("a");
        take(&client, &held).await?;
        fill(&server).await?;
        let keys = server.keys("*").await?;
        for request in [attempt("b"), brief("b", millis(500)), ask("b", Mode::Shared)] {
            let error = client.acquire(&request).await.err().ok_or("it is granted")?;
            says(&error, ErrorKind::Unavailable, "out of memory");
            assert_eq!(server.keys("*").await?, keys);
        }
        free(&client, &held).await
    });
}
