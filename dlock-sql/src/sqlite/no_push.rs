//! No notifications, for systems without sockets in directories.

use std::path::Path;

use crate::engine::{NoListener, Notification};

pub(super) type SqliteListener = NoListener;

pub(super) async fn listener(_: &Path) -> Option<(SqliteListener, u32)> {
    None
}

#[derive(Debug)]
pub(super) enum Notifier {}

impl Notifier {
    pub(super) fn new(_: &Path) -> Option<Self> {
        None
    }

    pub(super) fn notify(&self, _: &[Notification]) {
        match *self {}
    }
}
