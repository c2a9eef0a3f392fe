//! The push messages of a connection.

use dlock_core::Instant;
use redis::{PushInfo, PushKind, Value};

use crate::waiters::Waiters;

/// Passes messages to the inbox. True if the connection is gone.
pub(super) fn receive(info: PushInfo, waiters: Option<&Waiters>, now: Instant) -> bool {
    match (info.kind, info.data.as_slice(), waiters) {
        (PushKind::Disconnection, ..) => return true,
        (PushKind::Message | PushKind::SMessage, [_, Value::BulkString(text)], Some(waiters)) => {
            waiters.receive(text, now);
        }
        _ => {}
    }
    false
}
