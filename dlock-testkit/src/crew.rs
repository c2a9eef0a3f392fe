//! Tasks that work on one case together.

use tokio::task::JoinSet;

use crate::{Stop, Verdict, context::Cx};

/// Tasks that work on one case together. They are aborted when this is dropped.
#[derive(Default)]
pub(crate) struct Crew(JoinSet<Verdict>);

impl Crew {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Starts a task.
    pub(crate) fn go(&mut self, work: impl Future<Output = Verdict> + Send + 'static) {
        self.0.spawn(work);
    }

    /// Waits until all tasks are done or one of them fails.
    pub(crate) async fn done(mut self, cx: &Cx) -> Verdict {
        let all = async {
            while let Some(one) = self.0.join_next().await {
                match one {
                    Ok(verdict) => verdict?,
                    Err(error) => return Err(Stop::failed(format!("a task died: {error}"))),
                }
            }
            Ok(())
        };
        // Contention has many steps, and on a busy machine each of them may take the whole bound.
        tokio::time::timeout(cx.bound() * 4, all)
            .await
            .unwrap_or_else(|_| Err(Stop::failed("tasks that contend do not get done")))
    }
}
