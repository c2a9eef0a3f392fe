//! Scripts that the server has forgotten, connections that it has closed, and a server that was
//! started anew: verbs go on.

use dlock_core::{DynBackend, Mode, Queue, Released, Renewal, Renewed};
use dlock_testkit::{
    Verdict,
    servers::redis::{Options, Persistence, RedisServer},
};

use crate::support::{
    LEASE, ask, attempt, connect, exclusive, free, granted, queue, renew, run, start, take, until,
    works, works_fully,
};

/// What happens to the server before each verb.
#[derive(Clone, Copy, Debug)]
enum Before {
    Forget,
    Hang,
    Both,
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

/// Each verb, after that.
async fn each_verb(server: &RedisServer, client: &DynBackend, before: Before) -> Verdict {
    let (held, waiting) = (exclusive("a"), exclusive("a"));
    do_it(server, before).await?;
    take(client, &held).await?;
    do_it(server, before).await?;
    renew(client, &held).await?;
    do_it(server, before).await?;
    queue(client, &waiting).await?;
    do_it(server, before).await?;
    assert_eq!(client.inspect(&held.name).await?.waiters.len(), 1);
    do_it(server, before).await?;
    let weaker = Renewal { claim: held.as_claim(), mode: Mode::Shared, lease: LEASE };
    assert_eq!(client.renew(&[weaker]).await?, [Renewed::Kept]);
    do_it(server, before).await?;
    // When the answer is lost with the connection, the second sending finds it done.
    let released = client.release(&held.as_claim()).await?;
    assert!(matches!(released, Released::Released | Released::AlreadyLost));
    do_it(server, before).await?;
    granted(client, &waiting).await?;
    do_it(server, before).await?;
    client.release(&waiting.as_claim()).await?;
    let both = [exclusive("b"), ask("c", Mode::permits(1, 2)?)];
    do_it(server, before).await?;
    client.acquire_all(&both).ok_or("it can't take two at once")?.await?;
    for request in &both {
        do_it(server, before).await?;
        client.release(&request.as_claim()).await?;
        assert!(client.inspect(&request.name).await?.is_free());
    }
    assert!(client.inspect(&held.name).await?.is_free());
    Ok(())
}

#[test]
fn verbs_go_on_when_the_server_has_forgotten_the_scripts() {
    run(async {
        let (server, client) = start().await?;
        each_verb(&server, &client, Before::Forget).await
    })
}

#[test]
fn verbs_go_on_when_the_server_has_closed_the_connection() {
    run(async {
        let (server, client) = start().await?;
        for before in [Before::Hang, Before::Both] {
            each_verb(&server, &client, before).await?;
        }
        Ok(())
    })
}

#[test]
fn the_plain_form_goes_on_as_well() {
    run(async {
        let server = RedisServer::start(&Options::new()).await?;
        let client = connect(&format!("{}?dlock.plain=true", server.url())).await?;
        for before in [Before::Forget, Before::Hang, Before::Both] {
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
fn waiting_goes_on_when_scripts_and_connections_are_gone() {
    run(async {
        let (server, client) = start().await?;
        let other = connect(&server.url()).await?;
        for before in [Before::Forget, Before::Hang, Before::Both] {
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
fn verbs_go_on_after_a_restart_that_kept_everything() {
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
fn a_restart_that_lost_everything_loses_the_locks_and_nothing_else() {
    run(async {
        let (server, client) = start().await?;
        let (held, waiting) = (exclusive("a"), exclusive("a"));
        let before = take(&client, &held).await?.token;
        queue(&client, &waiting).await?;
        server.restart().await?;
        let renewal = Renewal { claim: held.as_claim(), mode: held.mode, lease: LEASE };
        assert_eq!(client.renew(&[renewal]).await?, [Renewed::Lost]);
        assert_eq!(client.release(&held.as_claim()).await?, Released::AlreadyLost);
        let error = granted(&client, &waiting).await.err().ok_or("the place is there still")?;
        assert!(format!("{error:?}").contains("ask for the lock again"), "{error:?}");
        let next = take(&client, &attempt("a")).await?.token;
        assert!(next > before, "tokens start at the server's clock");
        Ok(())
    })
}

#[test]
fn a_lock_that_somebody_deleted_is_lost_and_can_be_taken() {
    run(async {
        let (server, client) = start().await?;
        for mode in [Mode::Exclusive, Mode::Shared, Mode::permits(2, 2)?] {
            let held = ask("a", mode);
            let before = take(&client, &held).await?.token;
            server.command(&["FLUSHALL"]).await?.ok()?;
            let renewal = Renewal { claim: held.as_claim(), mode, lease: LEASE };
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
fn clients_come_back_however_often_they_are_cut_off() {
    run(async {
        let (server, client) = start().await?;
        for _ in 0..20 {
            server.kill_clients().await?;
            works(&client, "a").await?;
        }
        until("one connection is left", async || {
            let clients = server.command(&["CLIENT", "LIST"]).await?.text()?;
            // The other is the one that asks.
            Ok(clients.lines().count() == 2)
        })
        .await?;
        assert_eq!(attempt("a").queue, Queue::FailIfBusy);
        Ok(())
    })
}
