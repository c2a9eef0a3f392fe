//! One queue with Go's mutex: `etcdctl lock`, and etcd's Lock service, which runs Go's mutex inside
//! the server. Both have to be of version 3.5 or later.

use std::time::Duration;

use dlock_core::{ClaimId, Mode};
use dlock_testlab::{Stop, etcd::EtcdServer};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{sleep, timeout},
};

use crate::support::{
    SOON, ask, exclusive, free, granted, keys, name, queue, run, start, take, until, waits,
};

/// Returns whether a version such as `3.5.1` is recent enough. If not, prints a message.
fn may_take_part(what: &str, version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let (major, minor) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    let may = (major, minor) >= (3, 5);
    if !may {
        println!("skipped: {what} {version} lets in waiters whose key is gone: use 3.5 or later");
    }
    may
}

async fn etcdctl_version(server: &EtcdServer) -> Result<String, Stop> {
    let text = server.etcdctl(&["version"]).await?;
    let version = text.lines().find_map(|line| line.strip_prefix("etcdctl version: "));
    Ok(version.ok_or("no version")?.to_owned())
}

#[test]
fn etcdctl_and_dlock_wait_in_one_queue() {
    run(async {
        let (server, client, _) = start().await?;
        if !may_take_part("etcdctl", &etcdctl_version(&server).await?) {
            return Ok(());
        }
        for mode in [Mode::Exclusive, Mode::Shared] {
            let (first, last) = (ask("a", mode), exclusive("a"));
            take(&client, &first).await?;
            let etcdctl = server.etcdctl(&["lock", "/dlock/a", "--", "/bin/sleep", "1"]);
            let ours = async {
                until("etcdctl waits", async || Ok(keys(&server, "a").await?.len() == 2)).await?;
                queue(&client, &last).await?;
                let state = client.inspect(&name("a")).await?;
                let [go, behind] = &state.waiters[..] else { return Err(Stop::failed("waiters")) };
                assert!(u64::try_from(go.claim.to_bits()).is_ok(), "{go:?}");
                assert_eq!(behind.claim, last.claim);
                free(&client, &first).await?;
                // Go's mutex holds the lock for a while, and then dlock's claim is granted.
                granted(&client, &last).await?;
                free(&client, &last).await
            };
            let (etcdctl, ours) = tokio::join!(etcdctl, ours);
            ours?;
            etcdctl?;
        }
        Ok(())
    });
}

#[test]
fn the_lock_service_and_dlock_wait_in_one_queue() {
    run(async {
        let (server, client, _) = start().await?;
        if !may_take_part("etcd", server.version()) {
            return Ok(());
        }
        let lease = post(&server, "/v3/lease/grant", r#"{"TTL":60}"#).await?;
        let lease: u64 = field(&lease, "ID")?.parse()?;
        // Returns the name in Base64.
        let lock = format!(r#"{{"name":"L2Rsb2NrL2E=","lease":{lease}}}"#);
        let (first, last) = (exclusive("a"), exclusive("a"));
        take(&client, &first).await?;
        let service = post(&server, "/v3/lock/lock", &lock);
        let ours = async {
            until("the service waits", async || Ok(keys(&server, "a").await?.len() == 2)).await?;
            queue(&client, &last).await?;
            sleep(Duration::from_millis(300)).await;
            assert_eq!(keys(&server, "a").await?.len(), 3);
            free(&client, &first).await
        };
        let (locked, ours) = tokio::join!(timeout(SOON, service), ours);
        ours?;
        field(&locked??, "key")?;
        let state = client.inspect(&name("a")).await?;
        assert_eq!(state.holders[0].claim, ClaimId::from_bits(lease.into()));
        assert!(state.holders[0].remaining <= Duration::from_secs(60));
        waits(&client, &last).await?;
        // An operator revokes it by its claim.
        free(&client, &exclusive("a").with_claim(state.holders[0].claim)).await?;
        granted(&client, &last).await?;
        free(&client, &last).await
    });
}

/// Sends a request to the server's JSON gateway, which passes it on to the gRPC service.
async fn post(server: &EtcdServer, path: &str, body: &str) -> Result<String, Stop> {
    let mut stream = TcpStream::connect(server.address()).await?;
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    match answer.starts_with("HTTP/1.1 200") {
        true => Ok(answer),
        false => Err(Stop::failed(answer)),
    }
}

/// Returns the text of a field of an answer.
fn field<'a>(answer: &'a str, name: &str) -> Result<&'a str, Stop> {
    let behind = answer.split_once(&format!("\"{name}\":\"")).ok_or("no such field")?.1;
    Ok(behind.split_once('"').ok_or("no end")?.0)
}
