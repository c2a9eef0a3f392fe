//! Connecting with an application's own `redis::Client`.

use dlock_core::{ConfigIssue, DynBackend, Error, ErrorKind};
use dlock_redis::{Redis, RedisConfig};
use dlock_testlab::redis::{Options, RedisServer};
use redis::Client;

use crate::support::{connect, run, says, works_fully};

async fn open(client: &Client) -> Result<DynBackend, Error> {
    Redis::connect(RedisConfig::from_client(client)?).await
}

#[test]
fn a_client_and_its_url_reach_the_same_locks() {
    run(async {
        let server = RedisServer::start(&Options::new().with_password("p")).await?;
        let url = format!("{}/2", server.url());
        let (ours, theirs) = (open(&Client::open(&*url)?).await?, connect(&url).await?);
        assert_eq!(ours.store(), theirs.store());
        works_fully(&ours, &theirs, "a").await
    })
}

#[test]
fn a_wrong_password_is_refused_with_its_reason() {
    run(async {
        let server = RedisServer::start(&Options::new().with_password("p")).await?;
        let url = server.url().replace(":p@", ":q@");
        let error = open(&Client::open(url)?).await.err().ok_or("it is let in")?;
        says(&error, ErrorKind::Config(ConfigIssue::Access), "password");
        Ok(())
    })
}

#[cfg(feature = "tls")]
#[test]
fn a_client_uses_its_own_certificates() {
    use dlock_testkit::Stop;

    run(async {
        let options = Options::new().with_tls().with_config("tls-auth-clients yes");
        let server = RedisServer::start(&options).await?;
        let url = server.tls_url().ok_or("no TLS")?;
        let read = |path: std::path::PathBuf| std::fs::read(path);
        let (certificate, key) = server.client_certificate().ok_or("no certificate")?;
        let certificates = |shown| -> Result<redis::TlsCertificates, Stop> {
            Ok(redis::TlsCertificates {
                client_tls: shown,
                root_cert: Some(read(server.ca().ok_or("no authority")?)?),
            })
        };
        let shown =
            redis::ClientTlsConfig { client_cert: read(certificate)?, client_key: read(key)? };
        let client = Client::build_with_tls(&*url, certificates(Some(shown))?)?;
        let (one, two) = (open(&client).await?, open(&client).await?);
        works_fully(&one, &two, "a").await?;
        assert!(one.store().starts_with("rediss://127.0.0.1:"), "{}", one.store());
        let without = Client::build_with_tls(&*url, certificates(None)?)?;
        let error = open(&without).await.err().ok_or("it needs no certificate")?;
        says(&error, ErrorKind::Config(ConfigIssue::Access), "dlock.tls_cert");
        Ok(())
    })
}
