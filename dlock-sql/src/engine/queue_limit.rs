//! The limit of a queue on databases whose statements have a maximum size.
//!
//! The row of a lock contains its queue. When its log is due, a statement brings the whole row in a
//! shorter form. If that does not fit into a statement any more, the log grows until the row
//! accepts nothing, not even a release. So claims that would make the queue that long are refused.

use std::collections::HashSet;

use dlock_core::{
    Error, ErrorKind, LockName,
    machine::{Op, text::snapshot},
};

use super::{
    cache::Cache,
    conn::Conn,
    job::{Job, PendingOp},
    row::{Row, Wanted},
};

/// Refuses new claims for queues that are longer than half of a statement, after a read of the row.
/// The claims in the queue can still be renewed and released, so it gets shorter again.
pub(crate) async fn refuse<C: Conn>(conn: &mut C, cache: &Cache, batch: &mut Vec<Job>) {
    let most = conn.most_bytes() / 2;
    let ops = batch.iter().flat_map(|job| &job.ops).filter(|pending| is_claim(&pending.op));
    let names: HashSet<&LockName> =
        ops.map(|pending| &pending.name).filter(|name| cache.length(name) > most).collect();
    if names.is_empty() {
        return;
    }
    let wanted: Vec<_> =
        names.into_iter().map(|name| Wanted { name: name.clone(), known: None }).collect();
    // If the read fails, the write decides.
    let Ok(seen) = conn.read(&wanted).await else { return };
    let rows = wanted.into_iter().zip(seen.rows);
    let full: HashSet<LockName> = rows
        .filter(|(_, row)| is_longer(row.as_ref().and_then(|row| row.as_ref().ok()), most))
        .map(|(wanted, _)| wanted.name)
        .collect();
    let is_refused = |pending: &PendingOp| is_claim(&pending.op) && full.contains(&pending.name);
    for mut job in batch.extract_if(.., |job| job.ops.iter().any(is_refused)) {
        job.fail(&Error::new(
            ErrorKind::Unavailable,
            format!(
                "the queue of this lock is too long for one statement ({most} bytes): reduce the \
                 number of waiters, or raise max_allowed_packet"
            ),
        ));
    }
}

fn is_claim(op: &Op) -> bool {
    matches!(op, Op::Acquire { .. } | Op::Join { .. })
}

/// Returns whether the state of a row is longer than this as text.
fn is_longer(row: Option<&Row>, most: usize) -> bool {
    let replayed = row.and_then(|row| row.replay().ok());
    replayed.is_some_and(|replayed| snapshot(&replayed.machine).len() > most)
}
