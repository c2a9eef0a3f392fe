//! Connecting: users and passwords, an application's own `redis::Client`, and no secret in any output.

use dlock_core::{ConfigIssue, DynBackend, Error, ErrorKind, Locks, Traced};
use dlock_redis::{Redis, RedisConfig};
use dlock_testkit::Heard;
use dlock_testlab::{
    Stop, Verdict,
    redis::{Options, RedisServer},
};
use redis::Client;

use crate::support::{
    attempt, connect, free, refused, run, says, start, take, until, works, works_fully,
};

const ACCESS: ErrorKind = ErrorKind::Config(ConfigIssue::Access);
const REMEDY: &str = "user or password in the URL";

/// Stands for every secret.
const CANARY: &str = "hunter2";

/// The text of an error and of all its sources.
fn whole(error: &dlock_core::Error) -> String {
    let mut text = format!("{error} {error:?}");
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(&format!(" {cause} {cause:?}"));
        source = cause.source();
    }
    text
}

async fn add_user(server: &RedisServer, words: &[&str]) -> Verdict {
    let all = ["ACL", "SETUSER"].iter().chain(words).chain(&["~*", "&*", "+@all"]);
    server.command(&all.copied().collect::<Vec<_>>()).await?.ok()?;
    Ok(())
}

#[test]
fn users_and_passwords_may_have_any_characters() {
    run(async {
        let (server, _) = start().await?;
        let at = server.address();
        add_user(&server, &["j@e", "on", ">p/?#@:% é+&="]).await?;
        let login = "j%40e:p%2F%3F%23%40%3A%25%20%C3%A9%2B&=";
        works(&connect(&format!("redis://{login}@{at}")).await?, "a").await?;
        add_user(&server, &["default", "resetpass", ">a:b", ">c%20d"]).await?;
        works(&connect(&format!("redis://:a:b@{at}")).await?, "a").await?;
        works(&connect(&format!("redis://:c%2520d@{at}/5")).await?, "a").await?;
        works(&connect(&format!("redis://default:a:b@{at}")).await?, "a").await
    })
}

#[test]
fn a_refused_login_is_explained_without_a_secret() {
    run(async {
        let (heard, _guard) = Heard::listen();
        let server = RedisServer::start(&Options::new().with_password("hunter2theirs")).await?;
        let at = server.address();
        add_user(&server, &["asleep", "off", ">hunter2"]).await?;
        for login in [
            "",
            ":hunter2@",
            "default:hunter2@",
            "joe:hunter2theirs@",
            "asleep:hunter2@",
            ":hunter2theirs%20@",
        ] {
            for option in ["", "?dlock.plain=true", "?dlock.durability=1"] {
                let error = refused(&format!("redis://{login}{at}{option}")).await?;
                // A missing password is named as such.
                let remedy = if login.is_empty() { "a password in the URL" } else { REMEDY };
                says(&error, ACCESS, remedy);
                assert!(!error.is_transient());
                assert!(!whole(&error).contains(CANARY), "{}", whole(&error));
            }
        }
        assert!(!heard.text().contains(CANARY), "{}", heard.text());
        Ok(())
    })
}

#[test]
fn no_output_contains_a_secret() {
    run(async {
        let (heard, _guard) = Heard::listen();
        let server = RedisServer::start(&Options::new().with_password(CANARY)).await?;
        let config = RedisConfig::from_url(&server.url())?;
        let client: DynBackend =
            Traced::new(connect(&format!("{}?dlock.response_timeout=5s", server.url())).await?);
        let locks = Locks::new(client.clone())?;
        let lock = locks.mutex("a")?;
        let guard = lock.lock().await?;
        server.kill_clients().await?;
        works(&client, "b").await?;
        let mut shown = format!("{config:?} {client:?} {locks:?} {lock:?} {guard:?}");
        guard.release().await?;
        server.kill();
        let error = client.acquire(&attempt("a")).await.err().ok_or("the server is gone")?;
        shown.push_str(&whole(&error));
        shown.push_str(&heard.text());
        assert!(shown.contains("dlock.acquire"), "{shown}");
        assert!(!shown.contains(CANARY), "{shown}");
        Ok(())
    })
}

#[test]
fn a_changed_password_is_reported() {
    run(async {
        let (heard, _guard) = Heard::listen();
        let server = RedisServer::start(&Options::new().with_password(CANARY)).await?;
        let url = format!("{}?dlock.response_timeout=2s", server.url());
        let client = connect(&url).await?;
        let held = attempt("a");
        take(&client, &held).await?;
        let mut admin = server.connect().await?;
        admin.command(&["CONFIG", "SET", "requirepass", "other"]).await?.ok()?;
        for kind in ["normal", "pubsub"] {
            admin.command(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]).await?.ok()?;
        }
        let mut reported = None;
        until("the password is refused", async || {
            let error = client.acquire(&attempt("b")).await.err();
            let error = error.ok_or_else(|| Stop::failed("it is let in"))?;
            let is_reported = error.to_string().contains(REMEDY);
            reported = Some(error);
            Ok(is_reported)
        })
        .await?;
        let error = reported.ok_or("never refused")?;
        assert!([ErrorKind::Unavailable, ACCESS].contains(&error.kind()), "{error}");
        assert!(!whole(&error).contains(CANARY), "{error:?}");
        admin.command(&["CONFIG", "SET", "requirepass", CANARY]).await?.ok()?;
        until("the password is right again", async || Ok(client.inspect(&held.name).await.is_ok()))
            .await?;
        free(&client, &held).await?;
        assert!(!heard.text().contains(CANARY), "{}", heard.text());
        Ok(())
    })
}

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
