//! Java programs beside a ZooKeeper server.

use std::time::Duration;

use dlock_testlab::{
    Verdict,
    zookeeper::{JavaProgram, Options, ZooKeeperServer},
};
use tokio::time::{sleep, timeout};

use crate::{is_alive, zookeeper::with_zookeeper};

const MUTEX: &str = include_str!("java/Mutex.java");
const SECURE: &str = include_str!("java/Secure.java");
/// The seconds for which a program that must succeed tries to connect: a backstop on a busy
/// machine.
const CONNECTS: &str = "60";
/// The same for a program that the server must refuse, which happens at each attempt.
const REFUSED: &str = "5";

#[test]
fn curator_takes_and_releases_a_lock() {
    with_zookeeper(async {
        let server = ZooKeeperServer::start(&Options::new()).await?;
        let mut mutex = JavaProgram::start(MUTEX, &[&server.address(), "/locks/a"]).await?;
        assert_eq!(mutex.line().await?, "acquired");
        let nodes = server.nodes_under("/locks").await?;
        assert!(nodes.len() == 2 && nodes[1].contains("-lock-"), "{nodes:?}");
        let dump = server.four_letter_word("dump").await?;
        assert!(dump.contains(&nodes[1]), "{dump} is without {}", nodes[1]);

        mutex.say("release").await?;
        assert_eq!(mutex.line().await?, "released");
        assert_eq!(mutex.finish().await?, "end\n");
        // The program leaves containers, which the server removes, even if they were never used.
        let removed = async {
            while !server.nodes_under("/").await?.is_empty() {
                sleep(Duration::from_millis(50)).await;
            }
            Verdict::Ok(())
        };
        timeout(Duration::from_secs(60), removed).await?
    });
}

#[test]
fn a_program_that_is_killed_leaves_its_session_behind() {
    with_zookeeper(async {
        let server = ZooKeeperServer::start(&Options::new()).await?;
        let mut mutex = JavaProgram::start(MUTEX, &[&server.address(), "/locks/a"]).await?;
        assert_eq!(mutex.line().await?, "acquired");
        let pid = mutex.pid().unwrap();
        mutex.pause()?;
        mutex.resume()?;
        mutex.kill();
        assert!(!is_alive(pid) && mutex.pid().is_none() && mutex.pause().is_err());
        assert!(mutex.say("release").await.is_err() && mutex.line().await.is_err());
        assert_eq!(server.nodes_under("/locks/a").await?.len(), 1);

        let dropped = JavaProgram::start(MUTEX, &[&server.address(), "/locks/b"]).await?;
        let pid = dropped.pid().unwrap();
        drop(dropped);
        assert!(!is_alive(pid));
        Ok(())
    });
}

#[test]
fn a_program_that_fails_says_why() {
    with_zookeeper(async {
        let wrong = JavaProgram::run("class Main { nothing }", &[]).await.unwrap_err();
        assert!(format!("{wrong:?}").contains("<identifier> expected"), "{wrong:?}");
        let main = "class Main { public static void main(String[] args) { HERE } }";
        let prints = main.replace("HERE", "System.out.println(args[0] + args.length);");
        assert_eq!(JavaProgram::run(&prints, &["a b", "c"]).await?, "a b2\n");
        let throws = main.replace("HERE", r#"throw new RuntimeException("on purpose");"#);
        let thrown = JavaProgram::run(&throws, &[]).await.unwrap_err();
        assert!(format!("{thrown:?}").contains("on purpose"), "{thrown:?}");
        Ok(())
    });
}

#[test]
fn tls_is_spoken_with_a_certificate_that_the_authority_signed() {
    with_zookeeper(async {
        let server = ZooKeeperServer::start(&Options::new().with_tls()).await?;
        let (address, ca) = (server.tls_address().unwrap(), server.ca().unwrap());
        let ca = ca.display().to_string();
        server.create("/a", "1").await?;
        assert_eq!(JavaProgram::run(SECURE, &[CONNECTS, &address, &ca]).await?, "[a, zookeeper]\n");

        let picky = Options::new().with_tls().with_config("ssl.clientAuth=need");
        let picky = ZooKeeperServer::start(&picky).await?;
        let (address, other) = (picky.tls_address().unwrap(), picky.ca().unwrap());
        let other = other.display().to_string();
        let (certificate, key) = picky.client_certificate().unwrap();
        let (certificate, key) = (certificate.display().to_string(), key.display().to_string());
        let known = [CONNECTS, &address, &other, &certificate, &key];
        assert_eq!(JavaProgram::run(SECURE, &known).await?, "[zookeeper]\n");
        let nobody = [REFUSED, &address, &other];
        assert_eq!(JavaProgram::run(SECURE, &nobody).await?, "refused\n");
        let stranger = [REFUSED, &address, &ca, &certificate, &key];
        assert_eq!(JavaProgram::run(SECURE, &stranger).await?, "refused\n");

        let plain = ZooKeeperServer::start(&Options::new()).await?;
        assert!(plain.tls_address().is_none() && plain.client_certificate().is_none());
        Ok(())
    });
}
