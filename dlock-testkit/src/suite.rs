//! Runs the cases over one store.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, OnceLock},
    time::Duration,
};

use dlock_core::Guarantees;
use tokio::runtime::{Builder, Runtime};

use crate::{
    Bounds, Case, Opened, Stop, Store, Verdict,
    case::{Cx, connected},
    stalls::repeated_once,
};

/// The bound of a whole case as a multiple of the bound of one step. It catches code that hangs
/// outside of all steps.
pub(crate) const HANGS: u32 = 8;

/// The cases over one kind of store, for programs that run cases themselves. A test target calls
/// [`run`](fn@crate::run).
pub struct Suite {
    store: Arc<dyn Store>,
    opened: OnceLock<Result<Shared, Stop>>,
    // The last field, so that the store's tasks outlive the fields that are dropped before it.
    runtime: Runtime,
}

#[derive(Clone)]
struct Shared {
    opened: Arc<dyn Opened>,
    guarantees: Guarantees,
    bounds: Bounds,
}

/// The result of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The claim held.
    Passed,
    /// The store rules the case out, or the store is missing.
    Ignored {
        /// The reason.
        reason: String,
        /// Whether the reason is that the store is missing.
        store_missing: bool,
    },
    /// The claim did not hold.
    Failed(String),
}

impl Suite {
    /// Returns the cases over this kind of store, which is opened when the first case runs.
    ///
    /// # Errors
    /// If no runtime can be created.
    pub fn new(store: impl Store) -> std::io::Result<Self> {
        Self::over(Arc::new(store))
    }

    pub(crate) fn over(store: Arc<dyn Store>) -> std::io::Result<Self> {
        Ok(Self { store, opened: OnceLock::new(), runtime: runtime()? })
    }

    /// Opens the store, unless an earlier call or case has opened it.
    pub fn open(&self) -> Outcome {
        self.shared().map(|_| ()).into()
    }

    /// Runs one case, in the calling thread and on a runtime of its own. If it fails while the
    /// machine stalls for a quarter of the [lease](Bounds::lease) or longer, it is repeated once,
    /// without other cases of this process, and a line on standard error says so. A
    /// [violation](Stop::violation) is never repeated.
    pub fn run_case(&self, case: &Case) -> Outcome {
        let lease = match self.shared() {
            Ok(shared) => shared.bounds.lease,
            Err(stop) => return Err(stop).into(),
        };
        let setting = self.store.setting();
        let before = if setting.is_empty() { String::new() } else { format!("{setting}::") };
        let name = format!("{}::{before}{}", self.store.name(), case.name());
        repeated_once(&name, lease, || self.verdict(case), || self.verdict(case)).into()
    }

    /// Runs one case as [`run_case`](Self::run_case) does, and never repeats it.
    pub fn try_case(&self, case: &Case) -> Outcome {
        self.verdict(case).into()
    }

    fn verdict(&self, case: &Case) -> Verdict {
        no_panic(|| self.attempt(case))
    }

    fn attempt(&self, case: &Case) -> Verdict {
        let Shared { opened, guarantees, bounds } = self.shared()?;
        let address = opened.address();
        for need in case.needs {
            if let Some(reason) = need.missing_in(&guarantees, address.as_deref()) {
                return Err(Stop::ruled_out(reason));
            }
        }
        let runtime = runtime()?;
        let verdict = runtime.block_on(async {
            let cx = Cx::new(case, self.store.clone(), opened, guarantees, bounds);
            let whole = async {
                (case.run)(cx.clone()).await?;
                cx.nothing_is_left().await
            };
            let mut whole = std::pin::pin!(whole);
            // Each step has its own bound. This bound is for code that hangs outside of all steps.
            // A case with many parts may take longer, provided that it completes a part within each
            // bound.
            loop {
                match tokio::time::timeout(bounds.wake_up * HANGS, &mut whole).await {
                    Ok(verdict) => break verdict,
                    Err(_) if cx.went_on() => {}
                    Err(_) => break Err(Stop::failed("the case hangs")),
                }
            }
        });
        runtime.shutdown_timeout(Duration::from_secs(1));
        verdict
    }

    fn shared(&self) -> Result<Shared, Stop> {
        let open = || {
            self.runtime.block_on(async {
                let opened: Arc<dyn Opened> = self.store.open().await?.into();
                let guarantees = connected(|| opened.connect()).await?.guarantees();
                Ok(Shared { bounds: opened.bounds(), opened, guarantees })
            })
        };
        self.opened.get_or_init(open).clone()
    }
}

impl std::fmt::Debug for Suite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Suite").field("store", &self.store.name()).finish_non_exhaustive()
    }
}

impl From<Verdict> for Outcome {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Ok(()) => Self::Passed,
            Err(stop) if stop.is_failure() => Self::Failed(stop.into_text()),
            Err(stop) => {
                Self::Ignored { store_missing: stop.is_missing(), reason: stop.into_text() }
            }
        }
    }
}

/// Creates the runtime of one case.
pub fn runtime() -> std::io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(2).enable_all().build()
}

/// Returns a panic as a failure.
pub(crate) fn no_panic(attempt: impl FnOnce() -> Verdict) -> Verdict {
    catch_unwind(AssertUnwindSafe(attempt))
        .unwrap_or_else(|panic| Err(Stop::failed(panic_text(&*panic))))
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panicked: {}", text.unwrap_or("with something that is no text"))
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;

    use super::*;
    use crate::{all::ALL, case::Running};

    struct Nowhere(bool);

    #[async_trait]
    impl Store for Nowhere {
        fn name(&self) -> &str {
            "nowhere"
        }

        async fn open(&self) -> Result<Box<dyn Opened>, Stop> {
            Err(if self.0 { Stop::missing("not installed") } else { Stop::failed("broken") })
        }
    }

    #[test]
    fn a_missing_store_ignores_every_case_with_the_reason() {
        let suite = Suite::new(Nowhere(true)).unwrap();
        let ignored = Outcome::Ignored { reason: "not installed".to_owned(), store_missing: true };
        assert_eq!(suite.open(), ignored);
        assert_eq!(suite.try_case(&ALL[0]), ignored);
    }

    #[test]
    fn a_store_that_does_not_open_fails_every_case() {
        let suite = Suite::new(Nowhere(false)).unwrap();
        assert!(matches!(suite.try_case(&ALL[0]), Outcome::Failed(_)));
    }

    #[test]
    fn a_panic_is_a_failure_with_its_text() {
        struct InMemory;
        struct Open;

        #[async_trait]
        impl Store for InMemory {
            fn name(&self) -> &str {
                "memory"
            }

            async fn open(&self) -> Result<Box<dyn Opened>, Stop> {
                Ok(Box::new(Open))
            }
        }

        #[async_trait]
        impl Opened for Open {
            async fn connect(&self) -> Result<dlock_core::DynBackend, dlock_core::Error> {
                Ok(dlock_core::Memory::new())
            }

            async fn leftovers(&self, _: &dlock_core::LockName) -> Result<Vec<String>, Stop> {
                Ok(Vec::new())
            }
        }

        let run = |_| -> Running { Box::pin(async { panic!("on purpose") }) };
        let case = Case { group: "none", name: "panics", needs: &[], run };
        let outcome = Suite::new(InMemory).unwrap().try_case(&case);
        assert!(matches!(outcome, Outcome::Failed(text) if text.contains("on purpose")));
    }
}
