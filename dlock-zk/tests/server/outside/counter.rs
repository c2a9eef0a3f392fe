//! A root in which more nodes were made than it can count.

use dlock_testlab::{
    Stop,
    zookeeper::{Ensemble, JavaProgram},
};
use zookeeper_client::{Acls, CreateMode};

use super::{lazy, url_of};
use crate::support::{connect, raw, run, works, works_fully};

const APPEND: &str = include_str!("../java/Append.java");

/// The counter of the root has 32 bits and outlives all sessions: behind its last number every
/// sequential node would get the same one.
#[test]
fn a_root_whose_counter_has_run_over_serves_new_clients() {
    run(async {
        let ensemble = Ensemble::start(&lazy()).await?;
        works(&connect(&url_of(&ensemble)).await?, "a").await?;
        for node in ensemble.nodes() {
            node.stop().await?;
        }
        let log = |node: usize| ensemble.nodes()[node].directory().join("data/version-2");
        let first = log(0).display().to_string();
        let args = [&first, "/dlock/theirs", &i32::MAX.to_string()];
        assert_eq!(JavaProgram::run(APPEND, &args).await?, "appended\n");
        // The others know what the first one tells them: it leads one of them before the last one
        // starts. Two that know nothing would be a majority without it.
        for node in 1..ensemble.nodes().len() {
            std::fs::remove_dir_all(log(node))?;
        }
        let [first, second, third] = ensemble.nodes() else {
            return Err(Stop::failed("an ensemble has three nodes"));
        };
        tokio::try_join!(first.restart(), second.restart())?;
        third.restart().await?;
        ensemble.until_well().await?;
        // All at once: each has a node there.
        let mut clients = Vec::new();
        for _ in 0..4 {
            clients.push(connect(&url_of(&ensemble)).await?);
        }
        let raw = raw(&ensemble.nodes()[0]).await?;
        let node = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let (_, number) = raw.create("/dlock/worn-", b"", &node).await?;
        assert_eq!(number.to_string(), i32::MAX.to_string());
        for (client, other) in clients.iter().zip(&clients[1..]) {
            works_fully(client, other, "a").await?;
            client.examine().await?;
        }
        Ok(())
    })
}
