//! The check at a connect: it tries all operations that locks need, so that a missing right is
//! reported at once.

use dlock_core::{ClaimId, ConfigIssue, Error};
use zookeeper_client::{CreateMode, Error as ZkError};

use crate::{
    acl::{Acl, CREATE, DELETE, READ, WRITE},
    config::ZkConfig,
    error::explain,
    session::Session,
};

/// Creates the root and a node in it, as every lock does. So missing rights, a missing chroot and a
/// read-only server are reported now.
pub(crate) async fn preflight(session: &Session, config: &ZkConfig) -> Result<(), Error> {
    let client = &session.client;
    if !session.has_node("/").await.map_err(explain)? {
        return Err(Error::config(
            ConfigIssue::Access,
            format!(
                "the chroot {} does not exist: create it, or use dlock.root, which dlock creates",
                config.chroot
            ),
        ));
    }
    // Checked before anything is created with that ACL: no client could use or remove it.
    if let Some(right) = session.acl.missing() {
        return Err(lacks(right));
    }
    let root = session.root();
    let is_new = !root.is_empty() && !session.has_node(root).await.map_err(explain)?;
    let tried = try_root(session).await;
    if tried.is_err() && is_new {
        // A root with this ACL would lock out all users without rights in it. If other clients use
        // it already, it has children, and stays.
        let _ = session.insist(|| client.delete(root, None)).await;
    }
    tried
}

/// Creates a node in the root, and deletes it, which may be forbidden.
async fn try_root(session: &Session) -> Result<(), Error> {
    let epoch = session.begin_epoch().await.map_err(explain)?;
    try_acl(session).await?;
    session.delete_path(&epoch).await.map_err(explain)?;
    session.epoch().await.map_err(explain).map(drop)
}

/// Performs the operations of a lock in a directory with the ACL of the URL, and leaves nothing
/// behind.
///
/// The root may be older and have another ACL, and the right to delete a node belongs to its
/// directory.
async fn try_acl(session: &Session) -> Result<(), Error> {
    if !matches!(session.acl, Acl::Entries(_)) {
        // The other kinds of ACL give every right.
        return Ok(());
    }
    // The directory of a lock can't have this name.
    let dir = format!("{}/%probe-{}", session.root(), ClaimId::random());
    session.read(|| session.make_dir(&dir)).await.map_err(explain)?;
    let tried = try_rights(session, &dir).await;
    // Without the right to delete, the node is removed with the session, and then the servers
    // remove the directory.
    let _ = session.insist(|| session.client.delete(&dir, None)).await;
    tried
}

async fn try_rights(session: &Session, dir: &str) -> Result<(), Error> {
    let client = &session.client;
    let node = format!("{dir}/node");
    let ephemeral = CreateMode::Ephemeral.with_acls(session.acl.for_driver());
    match session.insist(|| client.create(&node, b"", &ephemeral)).await {
        (Ok(_), _) | (Err(ZkError::NodeExists), true) => {}
        (Err(error), _) => return Err(without(CREATE, error)),
    }
    let read = async {
        session.read(|| client.list_children(dir)).await?;
        session.read(|| client.get_data(&node)).await
    };
    let read = read.await.map(drop);
    let written = session.insist(|| client.set_data(&node, b"", None)).await.0.map(drop);
    // Even if another step has failed.
    let deleted = session.delete_path(&node).await.map(drop);
    read.map_err(|error| without(READ, error))?;
    written.map_err(|error| without(WRITE, error))?;
    deleted.map_err(|error| without(DELETE, error))
}

/// Returns the error to show to people for this missing right.
fn without(right: &str, error: ZkError) -> Error {
    match error {
        ZkError::NoAuth => lacks(right).with_source(error),
        other => explain(other),
    }
}

fn lacks(right: &str) -> Error {
    Error::config(
        ConfigIssue::Access,
        format!(
            "dlock.acl does not give this client the right to {right}: give every program that \
             shares the locks the rights create, read, write and delete (crwd)"
        ),
    )
}
