//! Names that look like paths, and names that ZooKeeper reserves.

use dlock_testlab::client::are_separate;

use crate::{
    shared::start,
    support::{self, exclusive, free, name, run, take, works_fully},
};

/// Names, and their expected directories.
const NAMES: [(&str, &str); 20] = [
    ("a", "a"),
    ("/", "%2F"),
    ("/a", "%2Fa"),
    ("a/", "a%2F"),
    ("a/b", "a%2Fb"),
    ("//", "%2F%2F"),
    (".", "%2E"),
    ("..", "%2E."),
    ("...", "..."),
    ("../a", "..%2Fa"),
    ("%2E", "%252E"),
    ("%2e", "%252e"),
    ("%2F", "%252F"),
    ("%", "%25"),
    ("zookeeper", "%7Aookeeper"),
    ("%7Aookeeper", "%257Aookeeper"),
    ("config", "config"),
    (" a  b ", "%20a%20%20b%20"),
    ("🔒", "%F0%9F%94%92"),
    ("lock-0000000001", "lock-0000000001"),
];

#[test]
fn all_kinds_of_locks_work_on_names_that_look_like_paths() {
    run(async {
        let (place, client) = start().await?;
        let other = place.connect().await?;
        for (name, _) in NAMES {
            works_fully(&client, &other, name).await?;
        }
        Ok(())
    })
}

#[test]
fn no_two_names_meet_and_each_has_its_own_directory() {
    run(async {
        let (place, client) = start().await?;
        are_separate(&client, &NAMES.map(|(text, _)| name(text))).await?;
        for (text, directory) in NAMES {
            let request = exclusive(text);
            take(&client, &request).await?;
            let nodes = place.server.nodes_under(&place.path(directory)).await?;
            assert_eq!(nodes.len(), 1, "{text}: {nodes:?}");
            free(&client, &request).await?;
        }
        Ok(())
    })
}

/// Without a root, the directories of locks are siblings of ZooKeeper's own one.
#[test]
fn nothing_collides_with_the_servers_own_directory() {
    run(async {
        let (server, _) = support::start().await?;
        let quota = server.nodes_under("/zookeeper").await?;
        for root in ["/", ""] {
            let url = format!("{}&dlock.root={root}", support::url(&server));
            let (client, other) = (support::connect(&url).await?, support::connect(&url).await?);
            are_separate(&client, &NAMES.map(|(text, _)| name(text))).await?;
            for lock in ["zookeeper", "zookeeper/quota", ".", "/"] {
                works_fully(&client, &other, lock).await?;
            }
            let request = exclusive("zookeeper");
            take(&client, &request).await?;
            let nodes = server.nodes_under("/%7Aookeeper").await?;
            assert_eq!(nodes.len(), 1, "{nodes:?}");
            free(&client, &request).await?;
        }
        assert_eq!(server.nodes_under("/zookeeper").await?, quota);
        Ok(())
    })
}

#[test]
fn the_longest_names_differ_in_their_last_byte() {
    run(async {
        let (place, client) = start().await?;
        let other = place.connect().await?;
        let long = |last: &str| name(&format!("{}{last}", "/".repeat(512 - last.len())));
        let names = [long("a"), long("b"), long("é"), long("🔒"), long("/")];
        assert!(names.iter().all(|name| name.as_str().len() == 512));
        are_separate(&client, &names).await?;
        works_fully(&client, &other, names[2].as_str()).await
    })
}
