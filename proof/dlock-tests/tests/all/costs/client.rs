//! A client of a store, and what it has cost up to now.

use std::time::Duration;

use dlock::{LockName, Locks, admin::Mode, guarantees::WakeUp};
use dlock_core::{AcquireRequest, Acquired, Released, Renewal, Renewed};
use dlock_testlab::{Proxy, Stop, Verdict};

use super::{cost::Cost, log::Log};

/// Longer than any test here, so that nothing is renewed by itself.
const LEASE: Duration = Duration::from_secs(300);
/// What follows an operation in the background has come by then.
const SETTLED: Duration = Duration::from_millis(30);

/// A client of its own.
pub(crate) struct Client {
    pub(crate) locks: Locks,
    meter: Meter,
}

/// Where its costs are seen.
#[derive(Debug)]
pub(crate) enum Meter {
    Wire(Proxy),
    Log(Log),
}

impl Client {
    pub(crate) async fn connect(url: &str, meter: Meter) -> Result<Self, Stop> {
        Ok(Self { locks: dlock::connect(url).await?, meter })
    }

    /// Whether the store tells a waiter of its grant, on its own wire: who asks again and again has
    /// no fixed price, and a log is that of both clients.
    pub(crate) fn is_notified(&self) -> bool {
        matches!(self.meter, Meter::Wire(_)) && self.locks.guarantees().wake_up == WakeUp::Push
    }

    /// What it has cost up to now, with what it has left to do in the background.
    pub(crate) async fn spent(&self) -> Result<Cost, Stop> {
        tokio::time::sleep(SETTLED).await;
        self.spent_now()
    }

    /// What it has cost up to now.
    pub(crate) fn spent_now(&self) -> Result<Cost, Stop> {
        match &self.meter {
            Meter::Wire(proxy) => Ok(Cost::of(proxy)),
            Meter::Log(log) => log.cost(),
        }
    }

    /// What this costs.
    pub(crate) async fn cost_of(&self, what: impl Future<Output = Verdict>) -> Result<Cost, Stop> {
        let before = self.spent().await?;
        what.await?;
        Ok(self.spent().await?.since(before))
    }

    /// Takes a lock that must be free.
    pub(crate) async fn take(&self, request: &AcquireRequest) -> Verdict {
        match self.locks.backend().acquire(request).await? {
            Acquired::Granted(_) => Ok(()),
            other => Err(Stop::failed(format!("{} is {other:?}", request.name))),
        }
    }

    /// Joins the queue of a lock that must not be free.
    pub(crate) async fn queue(&self, request: &AcquireRequest) -> Verdict {
        match self.locks.backend().acquire(request).await? {
            Acquired::Queued => Ok(()),
            other => Err(Stop::failed(format!("{} is {other:?}", request.name))),
        }
    }

    /// Waits until a claim is granted.
    pub(crate) async fn granted(&self, request: &AcquireRequest) -> Verdict {
        self.locks.backend().granted(request).await?;
        Ok(())
    }

    /// Gives up a claim that must be there.
    pub(crate) async fn free(&self, request: &AcquireRequest) -> Verdict {
        match self.locks.backend().release(&request.as_claim()).await? {
            Released::Released => Ok(()),
            other => Err(Stop::failed(format!("{} was {other:?}", request.name))),
        }
    }

    /// Renews claims that must be held.
    pub(crate) async fn renew(&self, requests: &[AcquireRequest]) -> Verdict {
        let renewal = |request: &AcquireRequest| {
            Renewal::new(request.as_claim(), request.mode, request.lease)
        };
        let renewals: Vec<_> = requests.iter().map(renewal).collect();
        let renewed = self.locks.backend().renew(&renewals).await?;
        match renewed.iter().all(|renewed| *renewed == Renewed::Kept) {
            true => Ok(()),
            false => Err(Stop::failed(format!("not all are kept: {renewed:?}"))),
        }
    }
}

/// A claim of this name.
pub(crate) fn claim(name: &str, mode: Mode) -> Result<AcquireRequest, Stop> {
    Ok(AcquireRequest::new(LockName::new(name)?, mode, LEASE))
}
