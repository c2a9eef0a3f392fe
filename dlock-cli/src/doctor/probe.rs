//! Acquires and releases a lock, as applications do, and checks the result of each step.

use std::time::Duration;

use dlock::{
    Error, FencingToken, LockName, Locks,
    admin::{ClaimId, Finding},
    backend::Clock,
    guarantees::Fencing,
};

use super::as_finding;

/// The longest wait for a lock whose name no other client knows.
const WAIT: Duration = Duration::from_secs(10);

/// The number of times that the lock is acquired. The first time may open connections, and is not
/// measured.
const TIMES: usize = 5;

/// A renewal that takes longer than this fraction of a lease leaves little time for retries.
const PART_OF_LEASE: u32 = 30;

/// Returns the findings of acquiring and releasing a lock, and the time of a round trip.
pub(super) async fn probe(locks: &Locks) -> (Vec<Finding>, Option<Duration>) {
    match Probe::run(locks).await {
        Ok(probe) => {
            let findings = vec![probe.trip(locks), probe.tokens(locks), probe.left()];
            (findings, Some(probe.round_trip))
        }
        Err(error) => (vec![as_finding("probe", &error)], None),
    }
}

struct Probe {
    round_trip: Duration,
    tokens: Vec<FencingToken>,
    /// The number of holders that the store reported while the lock was held.
    seen: usize,
    free_after: bool,
}

impl Probe {
    async fn run(locks: &Locks) -> Result<Self, Error> {
        let name = LockName::new(&format!("dlock-doctor/{}", ClaimId::random()))?;
        // Without local hand-off, so that each acquire goes to the store.
        let locks = locks.without_handoff();
        let mutex = locks.mutex(&name)?;
        let (mut tokens, mut times, mut seen) = (Vec::new(), Vec::new(), 0);
        for _ in 0..TIMES {
            let began = Clock::Boot.now();
            let guard = mutex.lock_timeout(WAIT).await?;
            let taken = Clock::Boot.now().since(began);
            tokens.push(guard.token());
            seen = locks.inspect(&name).await?.holders.len();
            let began = Clock::Boot.now();
            guard.release().await?;
            times.push((taken + Clock::Boot.now().since(began)) / 2);
        }
        let free_after = locks.inspect(&name).await?.is_free();
        times.remove(0);
        times.sort_unstable();
        let round_trip = times.get(times.len() / 2).copied().unwrap_or_default();
        Ok(Self { round_trip, tokens, seen, free_after })
    }

    fn trip(&self, locks: &Locks) -> Finding {
        let (trip, lease) = (self.round_trip, locks.options().lease());
        let found = format!("acquiring or releasing a lock takes {trip:.1?}");
        if trip > lease / PART_OF_LEASE {
            return Finding::warning(
                "round trip",
                format!("{found}, with leases of {lease:?}"),
                "use a store that is nearer or less busy, or longer leases (dlock.lease in the \
                 URL)",
            );
        }
        Finding::fine("round trip", found)
    }

    fn tokens(&self, locks: &Locks) -> Finding {
        let Some(last) = self.tokens.last() else {
            return Finding::wrong(
                "tokens",
                "the store issued none",
                "report this to the authors of the backend",
            );
        };
        if locks.guarantees().fencing == Fencing::None {
            return Finding::warning(
                "tokens",
                "this store has no fencing tokens that a resource can compare",
                "use dlock's own tables or keys, or do not rely on DLOCK_TOKEN",
            );
        }
        if self.tokens.is_sorted_by(|before, after| before < after) {
            return Finding::fine("tokens", format!("they grow; the last was {last}"));
        }
        Finding::wrong(
            "tokens",
            format!("they do not grow: {:?}", self.tokens),
            "check that no other program changes dlock's data, and that the URL leads to one store \
             only",
        )
    }

    fn left(&self) -> Finding {
        match (self.seen, self.free_after) {
            (1, true) => {
                Finding::fine("lock", "it was seen while held, and free after its release")
            }
            (1, false) => Finding::wrong(
                "lock",
                "it was released, but the store still shows it",
                "check that reads do not go to a replica that lags behind",
            ),
            (seen, _) => Finding::wrong(
                "lock",
                format!("it had one holder, but the store shows {seen}"),
                "check that reads do not go to a replica that lags behind",
            ),
        }
    }
}
