//! Credentials and addresses, by URL and by builder.

use std::time::Duration;

use dlock_core::{ConfigIssue, DynBackend, Error, ErrorKind};
use dlock_testlab::{
    Verdict,
    zookeeper::{Ensemble, Options, ZooKeeperServer},
};
use dlock_zk::{ZkConfig, ZooKeeper};

use crate::support::{
    connect, exclusive, fails, free, raw, refused, run, says, server, take, until, until_it_works,
    url, works, works_fully,
};

const ACCESS: ErrorKind = ErrorKind::Config(ConfigIssue::Access);

fn as_user(server: &ZooKeeperServer, login: &str) -> String {
    url(server).replace("//", &format!("//{login}@"))
}

async fn built(server: &ZooKeeperServer, user: &str, password: &str) -> Result<DynBackend, Error> {
    let config = ZkConfig::new([server.address().as_str()])?.with_login(user, password);
    assert!(!format!("{config:?}").contains(password), "{config:?}");
    ZooKeeper::connect(config.with_session_timeout(Duration::from_secs(15))).await
}

#[test]
fn credentials_of_a_url_and_of_a_builder_are_the_same() {
    run(async {
        let server = server().await?;
        // Credentials with every character that separates parts of a URL.
        for (user, password, written) in [
            ("joe", "secret", "joe:secret"),
            ("joe", "secret:/?#[]@!", "joe:secret%3A%2F%3F%23%5B%5D%40!"),
            ("jöe", "secret 🔒%", "j%C3%B6e:secret%20%F0%9F%94%92%25"),
        ] {
            let (url, builder) =
                (connect(&as_user(&server, written)).await?, built(&server, user, password).await?);
            let held = exclusive("a");
            take(&url, &held).await?;
            let raw = raw(&server).await?;
            raw.auth("digest", format!("{user}:{password}").as_bytes()).await?;
            let (acl, _) = raw.get_acl("/dlock").await?;
            assert!(acl[0].id().starts_with(&format!("{user}:")), "{acl:?}");
            free(&url, &held).await?;
            works_fully(&url, &builder, "a").await?;
            assert!(!format!("{url:?} {builder:?} {}", url.store()).contains("secret"));
            drop((url, builder));
            server.delete_recursively("/dlock").await?;
        }
        Ok(())
    })
}

#[test]
fn a_wrong_password_is_refused_and_never_shown() {
    run(async {
        let server = server().await?;
        let owner = built(&server, "joe", "the right one").await?;
        let held = exclusive("a");
        take(&owner, &held).await?;
        for login in ["joe:secret", "jim:secret", "joe:secret%20the%20right%20one"] {
            says(&refused(&as_user(&server, login)).await?, ACCESS, "user and password");
        }
        says(&refused(&url(&server)).await?, ACCESS, "user and password");
        let wrong = built(&server, "joe", "secret").await.err().ok_or("it is let in")?;
        says(&wrong, ACCESS, "user and password");
        free(&owner, &held).await?;

        // The same for credentials that can't be parsed.
        for login in [":secret", "joe", "joe:", "joe:secret%FF", "joe:secret@joe:secret@"] {
            let url = format!("zk://{login}@127.0.0.1:2181:1");
            let error = ZkConfig::from_url(&url).err().ok_or("it is read")?;
            says(&error, ErrorKind::Config(ConfigIssue::Url), "zk://user:password@host");
        }
        Ok(())
    })
}

#[test]
fn credentials_are_shown_again_after_a_restart_of_the_server() {
    run(async {
        let server = server().await?;
        let client = connect(&as_user(&server, "joe:secret")).await?;
        let held = exclusive("a");
        take(&client, &held).await?;
        server.stop().await?;
        server.restart().await?;
        until("the lock is released", async || Ok(client.release(&held.as_claim()).await.is_ok()))
            .await?;
        works(&client, "a").await?;
        works(&client, "b").await
    })
}

/// This server may answer the credentials before it answers the connection request.
#[test]
fn credentials_are_shown_to_a_server_with_netty() {
    run(async {
        let netty = "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory";
        let server = ZooKeeperServer::start(&Options::new().with_config(netty)).await?;
        for _ in 0..10 {
            works(&connect(&as_user(&server, "joe:secret")).await?, "a").await?;
        }
        Ok(())
    })
}

/// A login that is removed while a client uses it is like any other change of rights.
#[test]
fn rights_that_are_removed_later_are_reported() {
    run(async {
        let server = server().await?;
        let client = connect(&as_user(&server, "joe:secret")).await?;
        works(&client, "a").await?;
        server.delete_recursively("/dlock").await?;
        let somebody = built(&server, "somebody", "else").await?;
        let held = exclusive("b");
        take(&somebody, &held).await?;
        says(&fails(&client, &exclusive("a")).await?, ACCESS, "user and password");
        free(&somebody, &held).await?;
        // The servers remove the empty root, and then any client may create it.
        until("the root has gone", async || Ok(server.nodes_under("/").await?.is_empty())).await?;
        works(&client, "a").await
    })
}

#[test]
fn several_hosts_of_a_url_and_of_a_builder_are_one_store() {
    run(async {
        let ensemble = Ensemble::start(&Options::new()).await?;
        for node in ensemble.nodes() {
            node.nodes_under("/").await?;
        }
        ensemble.nodes()[0].create("/shop", "").await?;
        let url =
            format!("zk://joe:secret@{}/shop?dlock.session_timeout=15s", ensemble.connect_string());
        let client = connect(&url).await?;
        let mut hosts = ensemble.addresses();
        hosts.reverse();
        let config = ZkConfig::new(hosts.iter().map(String::as_str))?
            .with_chroot("/shop/")
            .with_login("joe", "secret")
            .with_session_timeout(Duration::from_secs(15));
        let other = ZooKeeper::connect(config).await?;
        assert_eq!(client.store(), other.store());
        works_fully(&client, &other, "a").await?;
        outlives_each_node(&ensemble, &client).await
    })
}

/// Each server in turn is stopped and restarted, and the client always finds another one.
async fn outlives_each_node(ensemble: &Ensemble, client: &DynBackend) -> Verdict {
    let held = exclusive("held");
    take(client, &held).await?;
    for node in ensemble.nodes() {
        node.kill();
        until_it_works(client).await?;
        node.restart().await?;
        ensemble.until_well().await?;
    }
    crate::support::renew(client, &held).await?;
    free(client, &held).await
}
