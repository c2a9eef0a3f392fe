//! One ZooKeeper server.

use std::{pin::pin, time::Duration};

use dlock_testlab::{
    Proxy, Verdict,
    zookeeper::{Mode, Options, ZooKeeperServer},
};

use crate::{
    assert_dies, assert_ends_while_paused, assert_leaves_nothing, assert_restarts,
    assert_waits_for_its_port,
};

pub(crate) fn with_zookeeper(test: impl Future<Output = Verdict>) {
    crate::with("zk", test);
}

#[test]
fn a_server_answers_and_leaves_nothing_behind() {
    with_zookeeper(async {
        let server = ZooKeeperServer::start(&Options::new()).await?;
        assert_eq!(server.mode().await?, Mode::Standalone);
        assert_eq!(server.four_letter_word("ruok").await?, "imok");
        for (path, data) in [("/a", "1"), ("/a/b", ""), ("/a/b/c", "3"), ("/ab", "4")] {
            server.create(path, data).await?;
        }
        assert_eq!(server.nodes_under("/").await?, ["/a", "/a/b", "/a/b/c", "/ab"]);
        assert_eq!(server.nodes_under("/a").await?, ["/a/b", "/a/b/c"]);
        assert_eq!(server.data("/a/b/c").await?.as_deref(), Some(&b"3"[..]));
        assert_eq!(server.data("/a/b").await?.as_deref(), Some(&b""[..]));
        let twice = format!("{:?}", server.create("/a", "1").await.unwrap_err());
        assert!(twice.contains("Other(-110)"), "{twice}");

        server.delete_recursively("/a").await?;
        server.delete_recursively("/a").await?;
        assert_eq!(server.nodes_under("/").await?, ["/ab"]);
        server.delete_recursively("/").await?;
        assert!(server.nodes_under("/").await?.is_empty());
        assert!(server.nodes_under("/a").await?.is_empty());
        assert_eq!(server.data("/a").await?, None);

        assert_leaves_nothing(server);
        Ok(())
    });
}

#[test]
fn acknowledged_writes_outlive_a_kill_and_a_stop() {
    with_zookeeper(async {
        for fsync in [false, true] {
            let server = ZooKeeperServer::start(&Options::new().with_fsync(fsync)).await?;
            server.create("/a", "1").await?;
            assert_dies(&server);
            assert!(server.mode().await.is_err() && server.data("/a").await.is_err());
            server.restart().await?;
            server.create("/b", "2").await?;
            assert_restarts(&server).await?;
            assert_eq!(server.nodes_under("/").await?, ["/a", "/b"]);
        }
        Ok(())
    });
}

#[test]
fn a_paused_server_answers_once_it_resumes() {
    with_zookeeper(async {
        let server = ZooKeeperServer::start(&Options::new()).await?;
        server.pause()?;
        assert!(server.mode().await.is_err());
        let mut created = pin!(server.create("/a", "1"));
        let early = tokio::time::timeout(Duration::from_millis(100), &mut created).await;
        assert!(early.is_err());
        server.resume()?;
        created.await?;
        assert_ends_while_paused(&server).await
    });
}

#[test]
fn options_reach_the_server() {
    with_zookeeper(async {
        let options = Options::new()
            .with_tick(Duration::from_millis(100))
            .with_sessions(Duration::from_millis(250), Duration::from_secs(9))
            .with_config("maxClientCnxns=17");
        let server = ZooKeeperServer::start(&options).await?;
        let conf = server.four_letter_word("conf").await?;
        for line in
            ["tickTime=100", "minSessionTimeout=250", "maxSessionTimeout=9000", "maxClientCnxns=17"]
        {
            assert!(conf.lines().any(|known| known == line), "{line} is not in {conf}");
        }
        let silent = ZooKeeperServer::start(&Options::new().with_words("ruok")).await?;
        assert_eq!(silent.four_letter_word("ruok").await?, "imok");
        let conf = silent.four_letter_word("conf").await?;
        assert!(conf.contains("not in the whitelist"), "{conf}");

        let wrong = Options::new().with_config("tickTime=often");
        let wrong = ZooKeeperServer::start(&wrong).await.unwrap_err();
        assert!(format!("{wrong:?}").contains("often"), "{wrong:?}");
        Ok(())
    });
}

#[test]
fn a_port_that_somebody_has_is_tried_again() {
    with_zookeeper(async {
        let server = ZooKeeperServer::start(&Options::new()).await?;
        assert_waits_for_its_port(&server).await
    });
}

#[test]
fn clients_come_through_a_proxy() {
    with_zookeeper(async {
        let server = ZooKeeperServer::start(&Options::new()).await?;
        let proxy = Proxy::start(&server.address()).await?;
        let mut connection = tokio::net::TcpStream::connect(proxy.address()).await?;
        tokio::io::AsyncWriteExt::write_all(&mut connection, b"ruok").await?;
        let mut answer = String::new();
        tokio::io::AsyncReadExt::read_to_string(&mut connection, &mut answer).await?;
        assert_eq!((answer.as_str(), proxy.connections()), ("imok", 1));
        Ok(())
    });
}

/// If Java can't write an archive, there is none.
#[test]
fn servers_start_with_the_archive_of_classes() {
    with_zookeeper(async {
        let server = ZooKeeperServer::start(&Options::new()).await?;
        let binary = std::env::current_exe()?;
        let target = binary.ancestors().find(|folder| folder.join("CACHEDIR.TAG").is_file());
        let archives = target.map(|target| target.join("dlock-testlab")).filter(|at| at.exists());
        let Some(archives) =
            archives.filter(|at| at.read_dir().is_ok_and(|mut at| at.next().is_some()))
        else {
            return Ok(());
        };
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", server.pid().unwrap()))?;
        assert!(maps.contains(&format!("{}/zookeeper-", archives.display())), "{maps}");
        Ok(())
    });
}
