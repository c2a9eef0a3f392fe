//! The ACLs of new nodes, directories and nodes with an unsuitable ACL, and deletions that the
//! servers refuse for a while or permanently.

use std::time::Duration;

use dlock_core::{ConfigIssue, ErrorKind, Locks, Mode, StoreEvent};
use dlock_testlab::{
    Proxy, Stop, Verdict,
    rights::{
        LOCKS, UNKNOWN, claims_end_after_a_refusal, claims_of_unknown_outcome_end, until_free,
    },
    zookeeper::ZooKeeperServer,
};
use dlock_zk::{ZkConfig, ZooKeeper};
use zookeeper_client::{Acl, Acls, AuthId, Client, CreateMode, Permission};

use crate::support::{
    LEASE, SOON, ask, connect, exclusive, fails, free, lazy, queue, raw, refused, renew, run, says,
    server, start, take, until, url, works, works_fully,
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

/// Another user with credentials.
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

/// For example a node of a client whose ACL does not permit others to read.
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
        let answer = tokio::time::timeout(SOON, client.granted(&waiting)).await?;
        says(&answer.err().ok_or("granted")?, ErrorKind::Unavailable, "read");
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

const VALUE: ErrorKind = ErrorKind::Config(ConfigIssue::OptionValue);

fn login(server: &ZooKeeperServer, options: &str) -> String {
    format!("{}{options}", url(server).replace("//", "//joe:secret@"))
}

fn shown(acl: &[Acl]) -> Vec<String> {
    let letters = [
        (Permission::READ, 'r'),
        (Permission::WRITE, 'w'),
        (Permission::CREATE, 'c'),
        (Permission::DELETE, 'd'),
        (Permission::ADMIN, 'a'),
    ];
    let rights = |acl: &Acl| -> String {
        letters.iter().filter(|(one, _)| acl.permission().has(*one)).map(|(_, l)| *l).collect()
    };
    acl.iter().map(|acl| format!("{}:{}:{}", acl.scheme(), acl.id(), rights(acl))).collect()
}

/// The credentials in the server's form: a name and a hash.
async fn joe(server: &ZooKeeperServer) -> Result<String, Stop> {
    let client = raw(server).await?;
    client.auth("digest", b"joe:secret").await?;
    let node = CreateMode::Ephemeral.with_acls(Acls::creator_all());
    client.create("/whoami", b"", &node).await?;
    let (acl, _) = client.get_acl("/whoami").await?;
    client.delete("/whoami", None).await?;
    Ok(acl[0].id().to_owned())
}

/// The ACLs of the root, a directory and a claim's node while a lock of this client is held.
async fn given(server: &ZooKeeperServer, url: &str) -> Result<Vec<Vec<String>>, Stop> {
    let client = connect(&format!("{url}&dlock.root=/x/y")).await?;
    let held = exclusive("a");
    take(&client, &held).await?;
    let raw = raw(server).await?;
    raw.auth("digest", b"joe:secret").await?;
    let mut all = Vec::new();
    for path in server.nodes_under("/").await? {
        let (acl, _) = raw.get_acl(&path).await?;
        all.push(shown(&acl));
    }
    free(&client, &held).await?;
    server.delete_recursively("/x").await?;
    Ok(all)
}

#[test]
fn nodes_get_the_requested_acl() {
    run(async {
        let server = server().await?;
        let joe = joe(&server).await?;
        assert!(joe.starts_with("joe:") && !joe.contains("secret"), "{joe}");
        let everybody = vec!["world:anyone:rwcda".to_owned()];
        let only_joe = vec![format!("digest:{joe}:rwcda")];
        let list = format!("world:anyone:r,digest:{joe}:rwcda");
        let listed: Vec<_> = list.split(',').map(str::to_owned).collect();
        let encoded = list.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
        for (url, expected) in [
            (url(&server), &everybody),
            (login(&server, ""), &only_joe),
            (login(&server, "&dlock.acl=open"), &everybody),
            (login(&server, "&dlock.acl=creator"), &only_joe),
            (login(&server, "&dlock.acl=auth::rwcda"), &only_joe),
            (login(&server, &format!("&dlock.acl={encoded}")), &listed),
        ] {
            // The root has two levels.
            let expected = vec![expected.clone(); 4];
            assert_eq!(given(&server, &url).await?, expected, "{expected:?}");
        }
        Ok(())
    })
}

#[test]
fn locks_work_with_every_acl_that_is_enough() {
    run(async {
        let server = server().await?;
        for (at, acl) in
            ["", "open", "creator", "auth::rwcd", "world:anyone:rwcd"].into_iter().enumerate()
        {
            let acl = if acl.is_empty() { String::new() } else { format!("&dlock.acl={acl}") };
            let url = login(&server, &format!("{acl}&dlock.root=/root{at}"));
            works_fully(&connect(&url).await?, &connect(&url).await?, "a").await?;
            let config = ZkConfig::new([server.address().as_str()])?
                .with_login("joe", "secret")
                .with_root(&format!("/root{at}"));
            let config = match acl.strip_prefix("&dlock.acl=") {
                Some(acl) => config.with_acl(acl)?,
                None => config,
            };
            let built = ZooKeeper::connect(config).await?;
            works_fully(&built, &connect(&url).await?, "a").await?;
        }
        Ok(())
    })
}

#[test]
fn creator_without_credentials_is_refused() {
    run(async {
        let server = server().await?;
        let error = refused(&format!("{}&dlock.acl=creator", url(&server))).await?;
        says(&error, VALUE, "dlock.acl=creator needs credentials");
        let config = ZkConfig::new([server.address().as_str()])?.with_acl("creator")?;
        let error = ZooKeeper::connect(config).await.err().ok_or("it is let in")?;
        says(&error, VALUE, "dlock.acl=creator needs credentials");
        // This ACL has the same effect, but only the server can know that.
        let error = refused(&format!("{}&dlock.acl=auth::rwcda", url(&server))).await?;
        says(&error, ACCESS, "dlock.acl");
        Ok(())
    })
}

#[test]
fn an_unknown_or_insufficient_acl_is_refused() {
    run(async {
        let server = server().await?;
        let refusals = [
            ("nosuchscheme:x:rwcda", "dlock.acl"),
            ("world:nobody:rwcda", "dlock.acl"),
            ("digest:without-a-hash:rwcda", "dlock.acl"),
            ("world:anyone:r", "create, read, write and delete"),
        ];
        for (at, (acl, remedy)) in refusals.into_iter().enumerate() {
            let url = login(&server, &format!("&dlock.acl={acl}&dlock.root=/root{at}"));
            says(&refused(&url).await?, ACCESS, remedy);
        }
        Ok(())
    })
}

/// A root with that ACL would refuse all clients, also those with the right ACL.
#[test]
fn an_acl_that_lacks_a_right_leaves_no_root_behind() {
    run(async {
        let server = server().await?;
        for acl in ["world:anyone:rwd", "world:anyone:crw", "ip:192.0.2.1:rwcda"] {
            let error = refused(&format!("{}&dlock.acl={acl}", url(&server))).await?;
            says(&error, ErrorKind::Config(ConfigIssue::Access), "right");
            let nodes = server.nodes_under("/").await?;
            assert!(!nodes.iter().any(|path| path.starts_with("/dlock")), "{acl}: {nodes:?}");
        }
        let (one, two) = (connect(&url(&server)).await?, connect(&url(&server)).await?);
        works_fully(&one, &two, "a").await
    })
}

/// The root is older than the client and open to all clients, so only the directories of its locks
/// lack the right.
#[test]
fn an_acl_without_a_needed_right_is_refused_at_start() {
    run(async {
        let (server, admin) = start().await?;
        let held = exclusive("held");
        take(&admin, &held).await?;
        let before = server.nodes_under("/dlock").await?;
        for (rights, missing) in [
            ("rwd", "create (c)"),
            ("cwd", "read (r)"),
            ("crd", "write (w)"),
            ("crw", "delete (d)"),
        ] {
            let own = format!("{}&dlock.acl=world:anyone:{rights}", url(&server));
            let error = refused(&own).await?;
            says(&error, ErrorKind::Config(ConfigIssue::Access), "dlock.acl");
            assert!(error.to_string().contains(missing), "{error}");
        }
        let others = "&dlock.acl=ip:192.0.2.1:rwcda";
        let error = refused(&format!("{}{others}", url(&server))).await?;
        says(&error, ErrorKind::Config(ConfigIssue::Access), "dlock.acl");
        let enough = connect(&format!("{}&dlock.acl=world:anyone:rwcd", url(&server))).await?;
        works_fully(&enough, &admin, "a").await?;
        until("nothing is left", async || {
            let left = server.nodes_under("/dlock").await?;
            Ok(left.iter().all(|path| before.contains(path) || path.as_str() == "/dlock/a"))
        })
        .await?;
        free(&admin, &held).await
    })
}

/// Sets the rights of all clients in the directory of a lock.
async fn permit(raw: &Client, lock: &str, rights: Permission) -> Verdict {
    let acl = [Acl::new(rights | Permission::ADMIN, AuthId::anyone())];
    raw.set_acl(&format!("/dlock/{lock}"), &acl, None).await?;
    Ok(())
}

/// All rights except that of deletion.
const KEPT: Permission = Permission::READ;

fn no_delete() -> Permission {
    KEPT | Permission::CREATE | Permission::WRITE
}

#[test]
fn a_refused_release_is_repeated_until_the_node_is_gone() {
    run(async {
        let server = server().await?;
        let (client, other) = (connect(&url(&server)).await?, connect(&url(&server)).await?);
        let raw = raw(&server).await?;
        // Another claim keeps the session alive, so it can't be replaced.
        let held = exclusive("held");
        take(&client, &held).await?;
        claims_end_after_a_refusal(&client, &other, LEASE, async |on| {
            for lock in LOCKS {
                permit(&raw, lock, if on { Permission::ALL } else { no_delete() }).await?;
            }
            Ok(())
        })
        .await?;
        renew(&client, &held).await?;
        free(&client, &held).await
    })
}

#[test]
fn an_expired_lease_whose_end_is_refused_ends_later() {
    run(async {
        let (server, client) = start().await?;
        let other = connect(&url(&server)).await?;
        let raw = raw(&server).await?;
        let (held, brief) = (exclusive("held"), exclusive("a").with_lease(Duration::from_secs(1)));
        take(&client, &held).await?;
        take(&client, &brief).await?;
        permit(&raw, "a", no_delete()).await?;
        until("the lease has ended", async || {
            Ok(client.inspect(&brief.name).await?.holders[0].remaining.is_zero())
        })
        .await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        permit(&raw, "a", Permission::ALL).await?;
        until_free(&other, "a", LEASE).await?;
        free(&client, &held).await
    })
}

#[test]
fn a_session_with_nothing_else_is_replaced() {
    run(async {
        let (server, client) = start().await?;
        let raw = raw(&server).await?;
        let brief = exclusive("a").with_lease(Duration::from_secs(2));
        take(&client, &brief).await?;
        permit(&raw, "a", no_delete()).await?;
        assert!(client.release(&brief.as_claim()).await.is_err());
        until("the node is gone", async || Ok(server.nodes_under("/dlock/a").await?.is_empty()))
            .await?;
        permit(&raw, "a", Permission::ALL).await?;
        works(&client, "a").await
    })
}

/// The answer to the creation is lost, and then the directory can't be read.
#[test]
fn a_node_that_can_not_be_searched_for_is_deleted_later() {
    run(async {
        // The directory stays, so the first request creates the node.
        let server = ZooKeeperServer::start(&lazy()).await?;
        let proxy = Proxy::start(&server.address()).await?;
        let to_proxy = format!("zk://{}?dlock.session_timeout=60s", proxy.address());
        let (client, other) = (connect(&to_proxy).await?, connect(&url(&server)).await?);
        let raw = raw(&server).await?;
        let held = exclusive("held");
        take(&client, &held).await?;
        claims_of_unknown_outcome_end(&client, &other, &proxy, async |on| {
            let rest = Permission::WRITE | Permission::CREATE | Permission::DELETE;
            permit(&raw, UNKNOWN, if on { Permission::ALL } else { rest }).await
        })
        .await?;
        renew(&client, &held).await?;
        free(&client, &held).await
    })
}

/// Sets the rights of all clients to one node.
async fn permit_node(raw: &Client, node: &str, rights: Permission) -> Verdict {
    raw.set_acl(node, &[Acl::new(rights | Permission::ADMIN, AuthId::anyone())], None).await?;
    Ok(())
}

/// The number of watches that the server has for all clients.
async fn watches(server: &ZooKeeperServer) -> Result<usize, Stop> {
    Ok(server.four_letter_word("wchp").await?.matches("0x").count())
}

/// A waiter could read the queue when it joined it.
#[test]
fn a_waiter_outlasts_a_right_that_is_missing() {
    const UNAVAILABLE: ErrorKind = ErrorKind::Unavailable;
    run(async {
        let (server, client) = start().await?;
        let other = connect(&url(&server)).await?;
        let raw = raw(&server).await?;
        let (held, waiting) = (exclusive("a"), exclusive("a"));
        take(&client, &held).await?;
        let holds = server.nodes_under("/dlock/a").await?;
        let node = holds.first().ok_or("no node")?;
        queue(&other, &waiting).await?;
        permit_node(&raw, node, Permission::DELETE).await?;
        permit(&raw, "a", Permission::CREATE | Permission::WRITE | Permission::DELETE).await?;
        let error = other.granted(&waiting).await.err().ok_or("granted")?;
        says(&error, UNAVAILABLE, "create, read, write and delete");
        let error = other.acquire(&waiting).await.err().ok_or("acquired")?;
        says(&error, UNAVAILABLE, "create, read, write and delete");
        permit_node(&raw, node, Permission::ALL).await?;
        permit(&raw, "a", Permission::ALL).await?;
        free(&client, &held).await?;
        take(&other, &waiting).await?;
        free(&other, &waiting).await
    })
}

#[test]
fn a_holder_whose_watch_was_refused_learns_of_its_loss() {
    run(async {
        let (server, client) = start().await?;
        let raw = raw(&server).await?;
        let mut losses = client.events().ok_or("it reports no losses")?;
        let held = exclusive("a");
        take(&client, &held).await?;
        let nodes = server.nodes_under("/dlock/a").await?;
        let node = nodes.first().ok_or("no node")?;
        permit_node(&raw, node, Permission::DELETE).await?;
        // By then, the watch was refused.
        tokio::time::sleep(Duration::from_secs(2)).await;
        permit_node(&raw, node, Permission::ALL).await?;
        until("the node is watched", async || Ok(watches(&server).await? > 0)).await?;
        raw.delete(node, None).await?;
        let lost = tokio::time::timeout(SOON, losses.recv()).await??;
        assert_eq!(lost, StoreEvent::Ended(held.claim));
        Ok(())
    })
}

/// The end of the node before it would be the grant, if its own node existed.
#[test]
fn a_waiter_whose_watch_is_refused_needs_its_own_node() {
    run(async {
        let (server, client) = start().await?;
        let other = connect(&url(&server)).await?;
        let raw = raw(&server).await?;
        let (held, waiting) = (exclusive("a"), exclusive("a"));
        take(&other, &held).await?;
        let holds = server.nodes_under("/dlock/a").await?;
        queue(&client, &waiting).await?;
        let nodes = server.nodes_under("/dlock/a").await?;
        let node = nodes.iter().find(|node| !holds.contains(node)).ok_or("no node")?;
        permit_node(&raw, node, Permission::DELETE).await?;
        let ending = async {
            // The holder and the waiter watch the node of the holder.
            until("both watch", async || Ok(watches(&server).await? >= 2)).await?;
            raw.delete(node, None).await?;
            free(&other, &held).await
        };
        let granted = tokio::time::timeout(SOON, client.granted(&waiting));
        let (granted, ending) = tokio::join!(granted, ending);
        ending?;
        assert_eq!(granted?.err().ok_or("it is granted")?.kind(), ErrorKind::NotHeld);
        works(&other, "a").await
    })
}
