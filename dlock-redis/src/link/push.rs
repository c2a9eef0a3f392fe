//! The push messages of a connection.

use dlock_core::Instant;
use redis::{PushInfo, PushKind, Value};

use crate::inbox::Inbox;

/// Passes messages to the inbox. True if the connection is gone.
pub(super) fn receive(info: PushInfo, inbox: Option<&Inbox>, now: Instant) -> bool {
    match (info.kind, info.data.as_slice(), inbox) {
        (PushKind::Disconnection, ..) => return true,
        (PushKind::Message | PushKind::SMessage, [_, Value::BulkString(text)], Some(inbox)) => {
            inbox.receive(text, now);
        }
        _ => {}
    }
    false
}
