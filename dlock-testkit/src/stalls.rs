//! Measures how long the machine stalls, and repeats what failed meanwhile.

use std::{collections::VecDeque, io::Write, sync::OnceLock, thread, time::Duration};

use dlock_core::Instant;
use parking_lot::{Mutex, RwLock};

use crate::{Stop, Verdict, case::now};

/// The time for which the measuring thread sleeps.
const STEP: Duration = Duration::from_millis(5);

/// The time over which lateness is added up before it is recorded.
const SLOT: Duration = Duration::from_millis(50);

/// The number of recorded slots: ten minutes.
const SLOTS: usize = 12_000;

/// The longest wait for a record. The measuring thread has as little time as the tests on a machine
/// that is busy.
const RECORDED: Duration = Duration::from_secs(10);

/// A case failed for a reason of its own if the machine stalled for less than this part of the lease.
const PART: u32 = 4;

/// A running case holds it shared. A repeated case holds it exclusively, so that no other case of
/// the process keeps the machine busy.
static ALONE: RwLock<()> = RwLock::new(());

/// How late the measuring thread woke up, in slots of time.
static SEEN: OnceLock<Mutex<VecDeque<(Instant, Duration)>>> = OnceLock::new();

/// Measures how long the machine stalls from now on.
///
/// A thread of the process sleeps in short steps. The time by which it oversleeps is time in which
/// the machine ran something else, or nothing: it was suspended, or had more to do than it has
/// processors. Tasks and servers of a test waited in that time too.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stalls(Instant);

impl Stalls {
    pub(crate) fn begin() -> Self {
        SEEN.get_or_init(|| {
            // Without the thread no stall is seen, and nothing is repeated.
            let _ = thread::Builder::new().name("stalls".to_owned()).spawn(measure);
            Mutex::default()
        });
        Self(now())
    }

    /// Returns the longest time for which the machine stalled within any period of this length.
    pub(crate) fn worst(self, period: Duration) -> Duration {
        let Some(seen) = SEEN.get() else { return Duration::ZERO };
        // What is not recorded yet belongs to it too.
        let end = now();
        while seen.lock().back().is_none_or(|(at, _)| *at < end) && now().since(end) < RECORDED {
            thread::sleep(STEP);
        }
        let seen: Vec<_> = seen.lock().iter().filter(|(at, _)| *at >= self.0).copied().collect();
        worst(&seen, period)
    }
}

fn worst(seen: &[(Instant, Duration)], period: Duration) -> Duration {
    let (mut first, mut sum, mut worst) = (0, Duration::ZERO, Duration::ZERO);
    for (at, late) in seen {
        sum += *late;
        // A slot that is longer than the period counts as a whole.
        while seen[first].0 != *at && at.since(seen[first].0) >= period {
            sum -= seen[first].1;
            first += 1;
        }
        worst = worst.max(sum);
    }
    worst
}

fn measure() {
    let mut last = now();
    let (mut began, mut late) = (last, Duration::ZERO);
    loop {
        thread::sleep(STEP);
        #[cfg(test)]
        drop(tests::STALLED.lock());
        let now = now();
        late += now.since(last).saturating_sub(STEP);
        last = now;
        if now.since(began) >= SLOT {
            if let Some(seen) = SEEN.get() {
                let mut seen = seen.lock();
                if seen.len() == SLOTS {
                    seen.pop_front();
                }
                seen.push_back((now, late));
            }
            (began, late) = (now, Duration::ZERO);
        }
    }
}

/// Runs a case, and repeats it once, alone in this process, if it failed and the machine stalled
/// meanwhile for a quarter of the lease or longer. A line `repeated: CASE: REASON (the machine
/// stalled for 420 ms)` says so on standard error. A [violation](Stop::violation) is never repeated.
///
/// # Errors
/// Those of the only run, or of the second one.
pub fn repeated_once(
    case: &str,
    lease: Duration,
    first: impl FnOnce() -> Verdict,
    again: impl FnOnce() -> Verdict,
) -> Verdict {
    let stalls = Stalls::begin();
    let stop = {
        let _shared = ALONE.read();
        match first() {
            Err(stop) if stop.may_be_repeated() => stop,
            verdict => return verdict,
        }
    };
    let stalled = stalls.worst(lease);
    if stalled < lease / PART {
        return Err(stop);
    }
    let _alone = ALONE.write();
    tell(&repeated(case, stop, stalled));
    again()
}

fn repeated(case: &str, stop: Stop, stalled: Duration) -> String {
    /// A reason may contain the log of a server.
    const LONGEST: usize = 300;
    let why = stop.into_text();
    let why: String = why.lines().next().unwrap_or_default().chars().take(LONGEST).collect();
    format!("repeated: {case}: {why} (the machine stalled for {} ms)", stalled.as_millis())
}

/// Prints a line on standard error, also if the test passes and its output is captured.
pub fn tell(line: &str) {
    // One write, so that no other line gets into it. Nothing else could report a failure.
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Stops the measuring thread for this long, as a stall of the machine would.
#[cfg(test)]
pub(crate) fn stall(time: Duration) {
    let _held = tests::STALLED.lock();
    thread::sleep(time);
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const LEASE: Duration = Duration::from_millis(400);

    /// The measuring thread does not run while a test holds it.
    pub(super) static STALLED: Mutex<()> = Mutex::new(());

    fn at(start: Instant, late: &[u64]) -> Vec<(Instant, Duration)> {
        let slot =
            |(n, late): (u32, &u64)| (start.saturating_add(SLOT * n), Duration::from_millis(*late));
        (1..).zip(late).map(slot).collect()
    }

    #[test]
    fn lateness_adds_up_within_a_period() {
        let start = now();
        let of = |late: &[u64]| worst(&at(start, late), SLOT * 3).as_millis();
        assert_eq!(of(&[]), 0);
        assert_eq!(of(&[10, 20, 30]), 60);
        assert_eq!(of(&[10, 0, 0, 10, 20, 0, 0]), 30);
        assert_eq!(of(&[0, 700, 0]), 700);
    }

    fn tried(first: impl FnOnce() -> Verdict) -> (Verdict, bool) {
        let again = Cell::new(false);
        let verdict = repeated_once("a case", LEASE, first, || {
            again.set(true);
            Ok(())
        });
        (verdict, again.get())
    }

    #[test]
    fn a_failure_while_the_machine_stalls_is_repeated() {
        let (verdict, again) = tried(|| {
            stall(LEASE);
            Err(Stop::failed("lost"))
        });
        assert!(verdict.is_ok() && again, "{verdict:?}");
    }

    #[test]
    fn a_stall_that_goes_on_after_the_failure_counts() {
        let (begun, begins) = std::sync::mpsc::channel();
        let (verdict, again) = tried(|| {
            thread::spawn(move || {
                let _held = STALLED.lock();
                begun.send(()).unwrap();
                thread::sleep(LEASE * 2);
            });
            begins.recv()?;
            thread::sleep(LEASE);
            Err(Stop::failed("lost"))
        });
        assert!(verdict.is_ok() && again, "{verdict:?}");
    }

    #[test]
    fn a_case_that_passes_is_not_repeated() {
        let (verdict, again) = tried(|| {
            stall(LEASE);
            Ok(())
        });
        assert!(verdict.is_ok() && !again, "{verdict:?}");
    }

    #[test]
    fn a_violation_is_not_repeated() {
        let (verdict, again) = tried(|| {
            stall(LEASE);
            Err(Stop::violation("two holders"))
        });
        assert!(verdict.is_err() && !again);
    }

    /// A lease of a day: no machine that runs tests stalls for a quarter of it.
    #[test]
    fn a_failure_without_a_stall_is_not_repeated() {
        let day = Duration::from_secs(86_400);
        let failed = || Err(Stop::failed("lost"));
        assert!(repeated_once("a case", day, failed, || Ok(())).is_err());
    }

    #[test]
    fn the_line_names_case_reason_and_stall() {
        let stop = Stop::missing("it was lost\nand more");
        let line = repeated("lease::a", stop, Duration::from_millis(420));
        assert_eq!(line, "repeated: lease::a: it was lost (the machine stalled for 420 ms)");
    }
}
