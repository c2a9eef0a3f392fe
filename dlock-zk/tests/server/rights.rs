//! Directories and nodes whose ACL is in the way.

use dlock_core::{ConfigIssue, ErrorKind, Locks, Mode};
use dlock_testlab::{Stop, Verdict, zookeeper::ZooKeeperServer};
use zookeeper_client::{Acl, Acls, AuthId, Client, CreateMode, Permission};

use crate::support::{
    ask, connect, exclusive, fails, free, queue, raw, refused, run, says, server, start, take,
    until, url, works, works_fully,
};

const ACCESS: ErrorKind = ErrorKind::Config(ConfigIssue::Access);

/// A name that Curator and dlock give to a node of a mutex.
const CLAIM: &str = "_c_cfa6e75c-1ef2-4d4e-8db4-4c1f0a4d3e11-lock-";

fn without_read() -> Vec<Acl> {
    let rest = Permission::CREATE | Permission::WRITE | Permission::DELETE;
    vec![Acl::new(rest, AuthId::anyone())]
}

fn read_only() -> Vec<Acl> {
    vec![Acl::new(Permission::READ, AuthId::anyone())]
}

async fn make(client: &Client, path: &str, acl: Acls<'_>) -> Verdict {
    client.create(path, b"", &CreateMode::Persistent.with_acls(acl)).await?;
    Ok(())
}

/// Somebody else with credentials.
async fn somebody(server: &ZooKeeperServer) -> Result<Client, Stop> {
    let client = raw(server).await?;
    client.auth("digest", b"somebody:else").await?;
    Ok(client)
}

fn logged_in(server: &ZooKeeperServer, login: &str) -> String {
    url(server).replace("//", &format!("//{login}@"))
}

#[test]
fn a_root_of_other_credentials_is_refused_at_start() {
    run(async {
        let server = server().await?;
        let somebody = somebody(&server).await?;
        make(&somebody, "/dlock", Acls::creator_all()).await?;
        for login in ["", "somebody:secret@", "stranger:secret@"] {
            let url = url(&server).replace("//", &format!("//{login}"));
            for root in ["", "&dlock.root=/dlock/deeper"] {
                let error = refused(&format!("{url}{root}")).await?;
                says(&error, ACCESS, "user and password");
                says(&error, ACCESS, "dlock.root");
            }
        }
        works(&connect(&logged_in(&server, "somebody:else")).await?, "a").await?;
        // Another root of the same server has no such ACL.
        works(&connect(&format!("{}&dlock.root=/locks", url(&server))).await?, "a").await
    })
}

#[test]
fn a_read_only_root_is_refused_at_start() {
    run(async {
        let server = server().await?;
        let raw = raw(&server).await?;
        make(&raw, "/dlock", Acls::new(&read_only())).await?;
        says(&refused(&url(&server)).await?, ACCESS, "create, read, write and delete");
        Ok(())
    })
}

/// The directories of locks have their own.
#[test]
fn a_root_without_the_right_to_read_suffices() {
    run(async {
        let server = server().await?;
        let raw = raw(&server).await?;
        make(&raw, "/dlock", Acls::new(&without_read())).await?;
        let (client, other) = (connect(&url(&server)).await?, connect(&url(&server)).await?);
        works_fully(&client, &other, "a").await
    })
}

#[test]
fn a_directory_of_others_is_refused_and_other_locks_work() {
    run(async {
        let (server, client) = start().await?;
        let somebody = somebody(&server).await?;
        let keeper = exclusive("b");
        take(&client, &keeper).await?;
        make(&somebody, "/dlock/a", Acls::creator_all()).await?;
        let wrong = connect(&logged_in(&server, "somebody:secret")).await?;
        for client in [&client, &wrong] {
            let request = exclusive("a");
            says(&fails(client, &request).await?, ACCESS, "belong to other credentials");
            says(&fails(client, &ask("a", Mode::Shared)).await?, ACCESS, "dlock.root");
            let state = client.inspect(&request.name).await;
            says(&state.err().ok_or("it is seen")?, ACCESS, "other credentials");
            let released = client.release(&request.as_claim()).await;
            says(&released.err().ok_or("it is released")?, ACCESS, "other credentials");
            let both = [exclusive("a"), exclusive("c")];
            let all = client.acquire_all(&both).ok_or("not all at once")?.await;
            says(&all.err().ok_or("granted")?, ACCESS, "other credentials");
            works(client, "c").await?;
        }
        free(&client, &keeper).await?;
        assert!(server.nodes_under("/dlock/a").await?.is_empty());
        let right = logged_in(&server, "somebody:else");
        works_fully(&connect(&right).await?, &connect(&right).await?, "a").await
    })
}

/// The node is created before the client finds that it can't read the queue.
#[test]
fn an_unreadable_directory_is_reported_and_left_unchanged() {
    run(async {
        let (server, client) = start().await?;
        let raw = raw(&server).await?;
        let keeper = exclusive("b");
        take(&client, &keeper).await?;
        make(&raw, "/dlock/a", Acls::new(&without_read())).await?;
        let locks = Locks::new(client.clone())?;
        let error = locks.mutex("a")?.lock().await.err().ok_or("granted")?;
        says(&error, ACCESS, "create, read, write and delete");
        let error = locks.multi(["a", "c"])?.lock().await.err().ok_or("granted")?;
        says(&error, ACCESS, "create, read, write and delete");
        until("no node is left", async || {
            let left = server.nodes_under("/dlock/a").await?;
            Ok(left.is_empty() && server.nodes_under("/dlock/c").await?.is_empty())
        })
        .await?;
        free(&client, &keeper).await
    })
}

/// Such as of a client whose own ACL does not let others read.
#[test]
fn an_unreadable_holder_keeps_others_out_with_an_error() {
    run(async {
        let (server, client) = start().await?;
        let raw = raw(&server).await?;
        let (held, waiting) = (exclusive("a"), exclusive("a"));
        take(&client, &held).await?;
        let acl = without_read();
        let node = CreateMode::EphemeralSequential.with_acls(Acls::new(&acl));
        let (_, number) = raw.create(&format!("/dlock/a/{CLAIM}"), b"", &node).await?;
        queue(&client, &waiting).await?;
        free(&client, &held).await?;
        let answer = tokio::time::timeout(crate::support::SOON, client.granted(&waiting)).await?;
        says(&answer.err().ok_or("granted")?, ACCESS, "read");
        // The waiter must not be shown as the first in the queue.
        match client.inspect(&waiting.name).await {
            Err(error) => says(&error, ACCESS, "read"),
            Ok(state) => {
                assert_ne!(state.holders[0].claim, waiting.claim, "{state:?}");
                assert_eq!(state.waiters[0].claim, waiting.claim, "{state:?}");
            }
        }
        raw.delete(&format!("/dlock/a/{CLAIM}{number}"), None).await?;
        take(&client, &waiting).await?;
        free(&client, &waiting).await
    })
}
