//! etcd servers, alone and as an ensemble.

use std::time::Duration;

use dlock_testlab::{
    Verdict,
    etcd::{Ensemble, EtcdServer, Options, Role},
};
use tokio::time::{sleep, timeout};

use crate::{
    assert_dies, assert_ends_while_paused, assert_leaves_nothing, assert_restarts,
    assert_waits_for_its_port, is_alive,
};

/// A backstop on a busy machine.
const LONG: Duration = Duration::from_secs(60);

fn with_etcd(test: impl Future<Output = Verdict>) {
    crate::with("etcd", test);
}

/// Waits until this node has another role.
async fn until_not(ensemble: &Ensemble, node: usize, role: Role) -> Verdict {
    let leaves = async {
        while ensemble.roles().await[node].is_none_or(|is| is == role) {
            sleep(Duration::from_millis(20)).await;
        }
    };
    Ok(timeout(LONG, leaves).await?)
}

#[test]
fn a_server_answers_and_leaves_nothing_behind() {
    with_etcd(async {
        let server = EtcdServer::start(&Options::new()).await?;
        assert_eq!(server.role().await?, Role::Leader);
        assert!(server.version().starts_with("3."), "{}", server.version());
        for (key, value) in [("/b", "2"), ("/a", "1"), ("-c", ""), ("/a/b", "two\nlines")] {
            server.put(key, value).await?;
        }
        assert_eq!(server.keys_under("/").await?, ["/a", "/a/b", "/b"]);
        assert_eq!(server.keys_under("").await?, ["-c", "/a", "/a/b", "/b"]);
        assert_eq!(server.value("/a/b").await?.as_deref(), Some("two\nlines"));
        assert_eq!(server.value("-c").await?.as_deref(), Some(""));
        assert_eq!(server.value("/c").await?, None);
        server.delete("/a").await?;
        server.delete("/a").await?;
        assert_eq!(server.keys_under("/").await?, ["/a/b", "/b"]);
        assert_eq!(server.metric("etcd_debugging_mvcc_keys_total").await?, 3.0);
        assert!(server.metric("etcd_none").await.is_err());

        assert_leaves_nothing(server);
        Ok(())
    });
}

#[test]
fn acknowledged_writes_and_leases_outlive_a_kill_and_a_stop() {
    with_etcd(async {
        let server = EtcdServer::start(&Options::new()).await?;
        let granted = server.etcdctl(&["lease", "grant", "3000"]).await?;
        let [lease] = &server.leases().await?[..] else { panic!("{granted}") };
        server.etcdctl(&["put", "/leased", "1", "--lease", lease]).await?;
        assert_dies(&server);
        assert!(server.role().await.is_err() && server.keys_under("/").await.is_err());
        server.restart().await?;
        server.put("/b", "2").await?;
        assert_restarts(&server).await?;
        assert_eq!(server.keys_under("/").await?, ["/b", "/leased"]);
        server.revoke(lease).await?;
        assert_eq!(server.keys_under("/").await?, ["/b"]);
        assert!(server.leases().await?.is_empty() && server.revoke(lease).await.is_err());
        Ok(())
    });
}

#[test]
fn a_paused_server_answers_once_it_resumes() {
    with_etcd(async {
        let server = EtcdServer::start(&Options::new()).await?;
        server.pause()?;
        assert!(server.role().await.is_err());
        server.resume()?;
        server.put("/a", "1").await?;
        assert_ends_while_paused(&server).await
    });
}

#[test]
fn a_port_that_another_process_has_is_tried_again() {
    with_etcd(async {
        let server = EtcdServer::start(&Options::new()).await?;
        assert_waits_for_its_port(&server).await
    });
}

#[test]
fn an_old_copy_takes_revisions_back() {
    with_etcd(async {
        let server = EtcdServer::start(&Options::new()).await?;
        server.put("/a", "1").await?;
        let (old, copy) = (server.revision().await?, server.snapshot().await?);
        server.put("/b", "2").await?;
        assert_eq!(server.revision().await?, old + 1);
        server.restart_from(&copy).await?;
        assert_eq!(server.revision().await?, old);
        assert_eq!(server.keys_under("/").await?, ["/a"]);
        Ok(())
    });
}

#[test]
fn a_full_server_refuses_writes_until_there_is_room() {
    with_etcd(async {
        let server = EtcdServer::start(&Options::new().with_quota(2_000_000)).await?;
        server.put("/a", "1").await?;
        assert!(!server.has_alarm().await?);
        server.fill().await?;
        let refused = server.put("/b", "2").await.unwrap_err().into_text();
        assert!(refused.contains("space exceeded"), "{refused}");
        server.delete("/a").await?;
        server.make_room().await?;
        assert!(!server.has_alarm().await?);
        server.put("/b", "2").await?;
        assert_eq!(server.keys_under("").await?, ["/b"]);
        Ok(())
    });
}

#[test]
fn old_revisions_are_gone_after_a_compaction() {
    with_etcd(async {
        let server = EtcdServer::start(&Options::new()).await?;
        server.put("/a", "1").await?;
        let old = server.revision().await?;
        server.put("/a", "2").await?;
        assert!(server.compact().await? > old);
        let old = ["get", "/a", "--rev", &old.to_string()];
        let gone = server.etcdctl(&old).await.unwrap_err().into_text();
        assert!(gone.contains("compacted"), "{gone}");
        server.defragment().await
    });
}

#[test]
fn clients_must_log_in_and_have_rights() {
    with_etcd(async {
        let options = Options::new().with_root("secret").with_token_ttl(Duration::from_secs(60));
        let server = EtcdServer::start(&options).await?;
        assert_eq!(server.url(), format!("etcd://root:secret@{}", server.address()));
        server.put("/a", "1").await?;
        assert!(server.etcdctl_as(None, &["get", "/a"]).await.is_err());
        for args in [
            &["role", "add", "app"][..],
            &["role", "grant-permission", "app", "--prefix=true", "readwrite", "/a"],
            &["user", "add", "app:pw"],
            &["user", "grant-role", "app", "app"],
        ] {
            server.etcdctl(args).await?;
        }
        server.etcdctl_as(Some("app:pw"), &["put", "/a/b", "1"]).await?;
        assert!(server.etcdctl_as(Some("app:pw"), &["put", "/b", "1"]).await.is_err());
        server.restart().await?;
        assert_eq!(server.keys_under("/").await?, ["/a", "/a/b"]);
        Ok(())
    });
}

#[test]
fn clients_use_tls_and_certificates() {
    with_etcd(async {
        let plain = EtcdServer::start(&Options::new()).await?;
        assert!(plain.tls_address().is_none() && plain.ca().is_none());
        for (options, strict) in
            [(Options::new().with_tls(), false), (Options::new().with_client_certificates(), true)]
        {
            let server = EtcdServer::start(&options).await?;
            let address = format!("https://{}", server.tls_address().unwrap());
            let (certificate, key) = server.client_certificate().unwrap();
            let text = |path: std::path::PathBuf| path.display().to_string();
            let (ca, certificate, key) = (text(server.ca().unwrap()), text(certificate), text(key));
            let anonymous = ["--endpoints", &address, "--cacert", &ca, "get", "/"];
            assert_eq!(server.etcdctl(&anonymous).await.is_err(), strict);
            let known = [&["--cert", &certificate, "--key", &key][..], &anonymous].concat();
            server.etcdctl(&known).await?;
        }
        Ok(())
    });
}

#[test]
fn flags_reach_the_server() {
    with_etcd(async {
        let election = (Duration::from_millis(50), Duration::from_millis(3000));
        let options =
            Options::new().with_flag("--max-txn-ops=3").with_election(election.0, election.1);
        let server = EtcdServer::start(&options).await?;
        // The shortest TTL is one and a half election timeouts.
        let granted = server.etcdctl(&["lease", "grant", "1"]).await?;
        assert!(granted.contains("TTL(5s)"), "{granted}");

        let wrong = Options::new().with_flag("--auto-compaction-mode=often");
        let wrong = format!("{:?}", EtcdServer::start(&wrong).await.unwrap_err());
        assert!(wrong.contains("often"), "{wrong}");
        Ok(())
    });
}

#[test]
fn an_ensemble_elects_a_leader_and_another_one_when_that_dies() {
    with_etcd(async {
        let ensemble = Ensemble::start(&Options::new().with_root("secret")).await?;
        let first = ensemble.leader().await?;
        let followers = ensemble.followers().await?;
        assert!(followers.len() == 2 && !followers.contains(&first), "{followers:?}");
        let url = format!("etcd://root:secret@{}", ensemble.addresses().join(","));
        assert_eq!(ensemble.url(), url);
        let nodes = ensemble.nodes();
        nodes[followers[0]].put("/a", "1").await?;
        assert_eq!(nodes[followers[1]].keys_under("/").await?, ["/a"]);

        nodes[first].kill();
        let second = ensemble.leader().await?;
        assert_ne!(second, first);
        assert_eq!(ensemble.roles().await[first], None);
        nodes[second].put("/b", "2").await?;
        nodes[first].restart().await?;
        ensemble.until_well().await?;
        assert_eq!(nodes[first].keys_under("/").await?, ["/a", "/b"]);

        ensemble.restart().await?;
        ensemble.until_well().await?;
        assert_eq!(nodes[first].keys_under("/").await?, ["/a", "/b"]);
        let pids: Vec<u32> = nodes.iter().filter_map(EtcdServer::pid).collect();
        assert_eq!(pids.len(), 3);
        drop(ensemble);
        assert!(!pids.into_iter().any(is_alive));
        Ok(())
    });
}

#[test]
fn leadership_moves_on_request_and_at_a_stop() {
    with_etcd(async {
        let ensemble = Ensemble::start(&Options::new()).await?;
        for node in 0..3 {
            ensemble.move_leader(node).await?;
            assert_eq!(ensemble.leader().await?, node);
        }
        ensemble.nodes()[2].stop().await?;
        assert_ne!(ensemble.leader().await?, 2);
        ensemble.nodes()[2].restart().await?;
        ensemble.until_well().await
    });
}

#[test]
fn an_isolated_leader_is_replaced_and_follows_after_healing() {
    with_etcd(async {
        let ensemble = Ensemble::start(&Options::new()).await?;
        let first = ensemble.leader().await?;
        let nodes = ensemble.nodes();
        nodes[first].put("/a", "1").await?;
        ensemble.isolate(first);
        until_not(&ensemble, first, Role::Leader).await?;
        let second = ensemble.leader().await?;
        assert_ne!(second, first);
        nodes[second].put("/b", "2").await?;
        // A read that needs no vote shows the old state, and a vote is refused.
        let old = ["get", "--prefix", "--keys-only", "--consistency", "s", "/"];
        assert_eq!(nodes[first].etcdctl(&old).await?.trim(), "/a");
        assert!(nodes[first].put("/c", "3").await.is_err());

        ensemble.heal(first);
        ensemble.until_well().await?;
        // The leader may have kept the refused write.
        let keys = nodes[first].keys_under("/").await?;
        assert_eq!(keys[..2], ["/a", "/b"], "{keys:?}");
        Ok(())
    });
}

#[test]
fn two_nodes_that_are_cut_from_each_other_keep_a_quorum() {
    with_etcd(async {
        let ensemble = Ensemble::start(&Options::new()).await?;
        let (leader, followers) = (ensemble.leader().await?, ensemble.followers().await?);
        ensemble.cut(leader, followers[0]);
        ensemble.nodes()[followers[1]].put("/a", "1").await?;
        ensemble.heal(leader);
        ensemble.until_well().await?;
        assert_eq!(ensemble.nodes()[followers[0]].keys_under("/").await?, ["/a"]);
        Ok(())
    });
}
