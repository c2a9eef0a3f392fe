use crate::support::*;
use dlock_testkit::servers::redis::{Options, RedisServer};
use std::time::Instant;

async fn show(what: &str, url: &str) {
    let t = Instant::now();
    let r = tokio::time::timeout(std::time::Duration::from_secs(20), connect(url)).await;
    match r {
        Err(_) => println!("{what}: HANGS"),
        Ok(Ok(b)) => println!("{what}: OK {:?} {:?}", b.store(), b.guarantees().wake_up),
        Ok(Err(e)) => println!(
            "{what}: {:?} {:?}\n     {e}\n     src {:?}",
            t.elapsed(),
            e.kind(),
            std::error::Error::source(&e).map(|s| s.to_string())
        ),
    }
}

#[test]
fn scratch() {
    run(async {
        let s = RedisServer::start(&Options::new().with_password("canary")).await?;
        let a = s.address();
        show("no password", &format!("redis://{a}")).await;
        show("wrong password", &format!("redis://:wrong@{a}")).await;
        show("wrong user", &format!("redis://joe:canary@{a}")).await;
        show("user only", &format!("redis://joe@{a}")).await;
        show("good", &format!("redis://:canary@{a}")).await;
        show("good default", &format!("redis://default:canary@{a}/15")).await;
        show("db 16", &format!("redis://default:canary@{a}/16")).await;
        s.command(&["ACL", "SETUSER", "sel", "on", ">pw", "~*", "&*", "+@all", "-select"])
            .await?
            .ok()?;
        show("no select", &format!("redis://sel:pw@{a}/3")).await;
        s.command(&["ACL", "SETUSER", "off", "off", ">pw", "~*", "&*", "+@all"]).await?.ok()?;
        show("off", &format!("redis://off:pw@{a}/3")).await;
        s.command(&["ACL", "SETUSER", "nohello", "on", ">pw", "~*", "&*", "+@all", "-hello"])
            .await?
            .ok()?;
        show("nohello", &format!("redis://nohello:pw@{a}/3")).await;
        s.command(&["ACL", "SETUSER", "nokeys", "on", ">pw", "&*", "+@all"]).await?.ok()?;
        show("nokeys", &format!("redis://nokeys:pw@{a}/3")).await;
        s.command(&["ACL", "SETUSER", "nochan", "on", ">pw", "~*", "resetchannels", "+@all"])
            .await?
            .ok()?;
        show("nochan", &format!("redis://nochan:pw@{a}/3")).await;
        s.command(&["ACL", "SETUSER", "ro", "on", ">pw", "%R~*", "&*", "+@all"]).await?.ok()?;
        show("ro", &format!("redis://ro:pw@{a}/3")).await;
        s.command(&["ACL", "SETUSER", "nosub", "on", ">pw", "~*", "&*", "+@all", "-subscribe"])
            .await?
            .ok()?;
        show("nosub", &format!("redis://nosub:pw@{a}/3")).await;
        s.command(&["ACL", "SETUSER", "noeval", "on", ">pw", "~*", "&*", "+@all", "-eval"])
            .await?
            .ok()?;
        show("noeval", &format!("redis://noeval:pw@{a}/3")).await;
        s.command(&["ACL", "SETUSER", "noevalsha", "on", ">pw", "~*", "&*", "+@all", "-evalsha"])
            .await?
            .ok()?;
        show("noevalsha", &format!("redis://noevalsha:pw@{a}/3")).await;
        s.command(&[
            "ACL", "SETUSER", "nocmd", "on", ">pw", "~*", "&*", "+@all", "-zrank", "-zadd", "-time",
        ])
        .await?
        .ok()?;
        show("nocmd", &format!("redis://nocmd:pw@{a}/3")).await;
        s.command(&["ACL", "SETUSER", "noinfo", "on", ">pw", "~*", "&*", "+@all", "-info"])
            .await?
            .ok()?;
        show("noinfo", &format!("redis://noinfo:pw@{a}/3")).await;
        show("noinfo guard", &format!("redis://noinfo:pw@{a}/3?dlock.restart_guard=1h")).await;
        show("noinfo dur", &format!("redis://noinfo:pw@{a}/3?dlock.durability=majority")).await;

        let s = RedisServer::start(&Options::new().with_config("maxclients 3").with_tls()).await?;
        let a = s.address();
        let (c1, c2, c3) = (s.connect().await?, s.connect().await?, s.connect().await?);
        for _ in 0..3 {
            show("maxclients", &format!("redis://{a}")).await;
        }
        drop((c1, c2, c3));
        show("maxclients", &format!("redis://{a}")).await;
        let t = s.tls_url().unwrap();
        let ca = s.ca().unwrap();
        show("tls", &format!("{t}?dlock.tls_ca={}", ca.display())).await;
        show("tls sys ca", &t).await;
        show("tls missing ca", &format!("{t}?dlock.tls_ca=/nonexistent")).await;
        show("tls bad ca", &format!("{t}?dlock.tls_ca=/etc/passwd")).await;
        show("tls on plaintext", &format!("rediss://{a}?dlock.tls_ca={}", ca.display())).await;
        show("plain on tls", &t.replace("rediss", "redis")).await;
        show(
            "tls host",
            &format!("{}?dlock.tls_ca={}", t.replace("127.0.0.1", "localhost"), ca.display()),
        )
        .await;
        show(
            "tls other name",
            &format!("{}?dlock.tls_ca={}", t.replace("127.0.0.1", "127.0.0.2"), ca.display()),
        )
        .await;
        let (cert, key) = s.client_certificate().unwrap();
        s.command(&["CONFIG", "SET", "tls-auth-clients", "yes"]).await?.ok()?;
        show("tls auth none", &format!("{t}?dlock.tls_ca={}", ca.display())).await;
        show(
            "tls auth",
            &format!(
                "{t}?dlock.tls_ca={}&dlock.tls_cert={}&dlock.tls_key={}",
                ca.display(),
                cert.display(),
                key.display()
            ),
        )
        .await;
        show(
            "tls auth swapped",
            &format!(
                "{t}?dlock.tls_ca={}&dlock.tls_cert={}&dlock.tls_key={}",
                ca.display(),
                key.display(),
                cert.display()
            ),
        )
        .await;
        let s2 = RedisServer::start(&Options::new().with_tls()).await?;
        let (cert, key) = s2.client_certificate().unwrap();
        show(
            "tls auth foreign",
            &format!(
                "{t}?dlock.tls_ca={}&dlock.tls_cert={}&dlock.tls_key={}",
                ca.display(),
                cert.display(),
                key.display()
            ),
        )
        .await;
        show("tls wrong ca", &format!("{t}?dlock.tls_ca={}", s2.ca().unwrap().display())).await;
        show("nobody", "redis://127.0.0.1:1").await;
        show("no host", "redis://nohost.invalid").await;
        Ok(())
    })
}
