//! ACLs that are not enough.

use dlock_core::{ConfigIssue, ErrorKind};

use crate::support::{
    connect, exclusive, free, refused, run, says, server, start, take, until, url, works_fully,
};

/// A root with that ACL would keep everybody out, also those who come with the right one.
#[test]
fn an_acl_that_lacks_a_right_leaves_no_root_behind() {
    run(async {
        let server = server().await?;
        for acl in ["world:anyone:rwd", "world:anyone:crw", "ip:192.0.2.1:rwcda"] {
            let error = refused(&format!("{}&dlock.acl={acl}", url(&server))).await?;
            says(&error, ErrorKind::Config(ConfigIssue::Access), "right");
            let nodes = server.nodes_under("/").await?;
            assert!(!nodes.iter().any(|path| path.starts_with("/dlock")), "{acl}: {nodes:?}");
        }
        let (one, two) = (connect(&url(&server)).await?, connect(&url(&server)).await?);
        works_fully(&one, &two, "a").await
    })
}

/// The root is older than the client and open to everybody, so only the directories of its locks
/// lack the right.
#[test]
fn an_acl_without_a_needed_right_is_refused_at_start() {
    run(async {
        let (server, admin) = start().await?;
        let held = exclusive("held");
        take(&admin, &held).await?;
        let before = server.nodes_under("/dlock").await?;
        for (rights, missing) in [
            ("rwd", "create (c)"),
            ("cwd", "read (r)"),
            ("crd", "write (w)"),
            ("crw", "delete (d)"),
        ] {
            let own = format!("{}&dlock.acl=world:anyone:{rights}", url(&server));
            let error = refused(&own).await?;
            says(&error, ErrorKind::Config(ConfigIssue::Access), "dlock.acl");
            assert!(error.to_string().contains(missing), "{error}");
        }
        let others = "&dlock.acl=ip:192.0.2.1:rwcda";
        let error = refused(&format!("{}{others}", url(&server))).await?;
        says(&error, ErrorKind::Config(ConfigIssue::Access), "dlock.acl");
        let enough = connect(&format!("{}&dlock.acl=world:anyone:rwcd", url(&server))).await?;
        works_fully(&enough, &admin, "a").await?;
        until("nothing is left", async || {
            let left = server.nodes_under("/dlock").await?;
            Ok(left.iter().all(|path| before.contains(path) || path.as_str() == "/dlock/a"))
        })
        .await?;
        free(&admin, &held).await
    })
}
