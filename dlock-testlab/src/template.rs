//! A data directory that servers get a copy of: making one takes longer than to start a server.

use tokio::sync::OnceCell;

use super::home::Home;
use crate::{Stop, Verdict};

/// What a template and its copies are called in their homes.
pub(super) const DATA: &str = "data";

/// The data directory that all servers of a kind start with, made once in this process. Nobody
/// drops it: the watchdog of its home removes it when the process ends.
#[derive(Debug)]
pub(super) struct Template(OnceCell<Home>);

impl Template {
    pub(super) const fn new() -> Self {
        Self(OnceCell::const_new())
    }

    /// Copies it into this home. If there is none yet, it is made as `DATA` in a home of its own.
    pub(super) async fn copy<F>(&self, home: &Home, make: impl FnOnce() -> F) -> Verdict
    where
        F: Future<Output = Result<Home, Stop>>,
    {
        let template = self.0.get_or_try_init(make).await?;
        let data = template.path().join(DATA).display().to_string();
        home.run(r#"cp -Rp -- "$1" ."#, &[&data]).await
    }
}
