//! Verbs work after the server lost its scripts, closed connections, or was restarted.

use dlock_core::{DynBackend, Mode, Released, Renewal, Renewed};
use dlock_testlab::{
    Stop, Verdict,
    redis::{Options, Persistence, RedisServer},
};

use crate::support::{
    LEASE, ask, attempt, connect, exclusive, free, granted, queue, renew, run, start, take, until,
    works, works_fully,
};

/// The fault before each verb.
#[derive(Clone, Copy, Debug)]
enum Before {
    Forget,
    Hang,
    Both,
}

/// Connects a client, then injects the fault. Each verb has its own client, since one whose
/// connection is cut repeatedly reconnects more slowly.
async fn after(server: &RedisServer, before: Before) -> Result<DynBackend, Stop> {
    let client = connect(&server.url()).await?;
    do_it(server, before).await?;
    Ok(client)
}

async fn do_it(server: &RedisServer, before: Before) -> Verdict {
    if let Before::Forget | Before::Both = before {
        server.flush_scripts().await?;
    }
    if let Before::Hang | Before::Both = before {
        server.kill_clients().await?;
    }
    Ok(())
}

/// Runs each verb after the fault.
async fn each_verb(server: &RedisServer, before: Before) -> Verdict {
    let client = async || after(server, before).await;
    let (held, waiting) = (exclusive("a"), exclusive("a"));
    take(&client().await?, &held).await?;
    renew(&client().await?, &held).await?;
    let waits = client().await?;
    queue(&waits, &waiting).await?;
    assert_eq!(client().await?.inspect(&held.name).await?.waiters.len(), 1);
    let weaker = Renewal::new(held.as_claim(), Mode::Shared, LEASE);
    assert_eq!(client().await?.renew(&[weaker]).await?, [Renewed::Kept]);
    free(&client().await?, &held).await?;
    granted(&waits, &waiting).await?;
    free(&client().await?, &waiting).await?;
    let both = [exclusive("b"), ask("c", Mode::permits(1, 2)?)];
    client().await?.acquire_all(&both).ok_or("it can't take two at once")?.await?;
    for request in &both {
        free(&client().await?, request).await?;
        assert!(client().await?.inspect(&request.name).await?.is_free());
    }
    assert!(client().await?.inspect(&held.name).await?.is_free());
    Ok(())
}

#[test]
fn verbs_work_after_the_server_lost_its_scripts() {
    run(async {
        let (server, _) = start().await?;
        each_verb(&server, Before::Forget).await
    })
}

#[test]
fn verbs_work_after_the_server_closed_the_connection() {
    run(async {
        let (server, _) = start().await?;
        each_verb(&server, Before::Hang).await?;
        each_verb(&server, Before::Both).await
    })
}

#[test]
fn the_plain_form_works_after_lost_scripts_and_connections() {
    run(async {
        let server = RedisServer::start(&Options::new()).await?;
        for before in [Before::Forget, Before::Hang, Before::Both] {
            let client = connect(&format!("{}?dlock.plain=true", server.url())).await?;
            let held = exclusive("a");
            do_it(&server, before).await?;
            take(&client, &held).await?;
            do_it(&server, before).await?;
            renew(&client, &held).await?;
            do_it(&server, before).await?;
            client.release(&held.as_claim()).await?;
            do_it(&server, before).await?;
            assert!(client.inspect(&held.name).await?.is_free());
        }
        Ok(())
    })
}

#[test]
fn a_waiter_survives_lost_scripts_and_connections() {
    run(async {
        let (server, _) = start().await?;
        // Repeated, since the requests that are lost depend on the timing.
        for before in [Before::Forget, Before::Hang, Before::Both].repeat(8) {
            let client = connect(&server.url()).await?;
            let other = connect(&server.url()).await?;
            let (held, waiting) = (exclusive("a"), exclusive("a"));
            take(&client, &held).await?;
            queue(&other, &waiting).await?;
            let release = async {
                do_it(&server, before).await?;
                client.release(&held.as_claim()).await?;
                do_it(&server, before).await
            };
            let (grant, released) = tokio::join!(granted(&other, &waiting), release);
            released?;
            grant?;
            other.release(&waiting.as_claim()).await?;
        }
        Ok(())
    })
}

#[test]
fn verbs_work_after_a_restart_without_data_loss() {
    run(async {
        let options = Options::new().with_persistence(Persistence::AofAlways);
        let server = RedisServer::start(&options).await?;
        let client = connect(&server.url()).await?;
        let (held, waiting) = (exclusive("a"), exclusive("a"));
        let token = take(&client, &held).await?.token;
        queue(&client, &waiting).await?;
        server.restart().await?;
        renew(&client, &held).await?;
        assert!(client.acquire(&attempt("a")).await? != client.acquire(&held).await?);
        free(&client, &held).await?;
        assert!(granted(&client, &waiting).await?.token > token);
        free(&client, &waiting).await?;
        works_fully(&client, &client, "a").await
    })
}

#[test]
fn a_restart_without_data_loses_locks_but_tokens_still_grow() {
    run(async {
        let (server, client) = start().await?;
        let (held, waiting) = (exclusive("a"), exclusive("a"));
        let before = take(&client, &held).await?.token;
        queue(&client, &waiting).await?;
        server.restart().await?;
        let renewal = Renewal::new(held.as_claim(), held.mode, LEASE);
        assert_eq!(client.renew(&[renewal]).await?, [Renewed::Lost]);
        assert_eq!(client.release(&held.as_claim()).await?, Released::AlreadyLost);
        let error = granted(&client, &waiting).await.err().ok_or("the place is there still")?;
        assert!(format!("{error:?}").contains("acquire the lock again"), "{error:?}");
        let next = take(&client, &attempt("a")).await?.token;
        assert!(next > before, "tokens start at the server's clock");
        Ok(())
    })
}

#[test]
fn a_deleted_lock_is_lost_and_can_be_acquired() {
    run(async {
        let (server, client) = start().await?;
        for mode in [Mode::Exclusive, Mode::Shared, Mode::permits(2, 2)?] {
            let held = ask("a", mode);
            let before = take(&client, &held).await?.token;
            server.command(&["FLUSHALL"]).await?.ok()?;
            let renewal = Renewal::new(held.as_claim(), mode, LEASE);
            assert_eq!(client.renew(&[renewal]).await?, [Renewed::Lost]);
            assert_eq!(client.release(&held.as_claim()).await?, Released::AlreadyLost);
            let again = ask("a", mode);
            assert!(take(&client, &again).await?.token > before);
            free(&client, &again).await?;
        }
        Ok(())
    })
}

#[test]
fn clients_reconnect_after_repeated_disconnects() {
    run(async {
        let (server, client) = start().await?;
        for _ in 0..6 {
            server.kill_clients().await?;
            works(&client, "a").await?;
        }
        until("one connection is left", async || {
            let clients = server.command(&["CLIENT", "LIST"]).await?.text()?;
            // The other waiter polls.
            Ok(clients.lines().count() == 2)
        })
        .await
    })
}
