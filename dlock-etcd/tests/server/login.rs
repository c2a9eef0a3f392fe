//! Users, their rights, and tokens that expire.

use std::time::Duration;

use dlock_core::{ConfigIssue, ErrorKind};
use dlock_testlab::{
    Verdict,
    etcd::{EtcdServer, Options},
};
use tokio::time::sleep;

use crate::support::{
    connect, exclusive, free, granted, queue, refused, renew, run, says, take, url, works,
};

#[test]
fn tokens_that_end_are_replaced() {
    run(async {
        let options = Options::new().with_root("secret").with_token_ttl(Duration::from_secs(1));
        let server = EtcdServer::start(&options).await?;
        let (client, other) = (connect(&url(&server)).await?, connect(&url(&server)).await?);
        assert!(!format!("{client:?} {}", client.store()).contains("secret"));
        let (held, next) = (exclusive("a"), exclusive("a"));
        take(&client, &held).await?;
        queue(&other, &next).await?;
        let waiting = granted(&other, &next);
        let releasing = async {
            for lock in ["b", "c"] {
                sleep(Duration::from_secs(3)).await;
                works(&client, lock).await?;
                works(&other, lock).await?;
                renew(&client, &held).await?;
            }
            free(&client, &held).await
        };
        let (granted, released) = tokio::join!(waiting, releasing);
        released?;
        granted?;
        free(&other, &next).await
    });
}

#[test]
fn wrong_logins_and_missing_rights_are_refused_with_a_remedy() {
    run(async {
        let server = EtcdServer::start(&Options::new().with_root("secret")).await?;
        let access = ErrorKind::Config(ConfigIssue::Access);
        let address = server.address();
        for (login, remedy) in
            [("", "password"), ("root:secret2@", "password"), ("nobody:secret@", "password")]
        {
            let error = refused(&format!("etcd://{login}{address}")).await?;
            says(&error, access, remedy);
        }
        add_user(&server, "/app/").await?;
        let error = refused(&format!("etcd://app:secret@{address}")).await?;
        says(&error, access, "grant-permission");
        let client = connect(&format!("etcd://app:secret@{address}/app")).await?;
        works(&client, "a").await?;
        assert_eq!(client.list("", 9).await?, []);
        client.examine().await?;
        Ok(())
    });
}

/// Adds the user `app`, who may read and write below this prefix.
pub(crate) async fn add_user(server: &EtcdServer, prefix: &str) -> Verdict {
    for args in [
        &["role", "add", "app"][..],
        &["role", "grant-permission", "app", "readwrite", "--prefix=true", prefix],
        &["user", "add", "app:secret"],
        &["user", "grant-role", "app", "app"],
    ] {
        server.etcdctl(args).await?;
    }
    Ok(())
}
