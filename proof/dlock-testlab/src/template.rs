//! A data directory that is copied for each server: creating one takes longer than starting a
//! server.

use tokio::sync::OnceCell;

use super::home::Home;
use crate::{Stop, Verdict};

/// The name of a template and of its copies in their homes.
pub(super) const DATA: &str = "data";

/// The data directory that all servers of a kind start with, created once per process. It is never
/// dropped: the watchdog of its home removes it when the process ends.
#[derive(Debug)]
pub(super) struct Template(OnceCell<Home>);

impl Template {
    pub(super) const fn new() -> Self {
        Self(OnceCell::const_new())
    }

    /// Copies the template into this home. If there is no template yet, `make` creates it as `DATA`
    /// in a separate home.
    pub(super) async fn copy<F>(&self, home: &Home, make: impl FnOnce() -> F) -> Verdict
    where
        F: Future<Output = Result<Home, Stop>>,
    {
        let template = self.0.get_or_try_init(make).await?;
        let data = template.path().join(DATA).display().to_string();
        home.run(r#"cp -Rp -- "$1" ."#, &[&data]).await
    }
}
