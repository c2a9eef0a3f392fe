//! A quorum of independent masters.

use crate::config::RedisConfig;
use dlock_core::{DynBackend, Error, ErrorKind};
use std::sync::Arc;

pub(crate) struct Quorum;
impl Quorum {
    pub(crate) async fn connect(_: RedisConfig) -> Result<DynBackend, Error> {
        Err(Error::new(ErrorKind::Unsupported, "not yet"))
    }
}
