//! No notifications, for systems without sockets in directories.

use std::path::Path;

use crate::engine::{Deaf, Note};

pub(super) type SqliteEars = Deaf;

pub(super) async fn ears(_: &Path) -> Option<(SqliteEars, u32)> {
    None
}

#[derive(Debug)]
pub(super) enum Voice {}

impl Voice {
    pub(super) fn new(_: &Path) -> Option<Self> {
        None
    }

    pub(super) fn tell(&self, _: &[Note]) {
        match *self {}
    }
}
