//! Detects steps of a store's clock, by comparing what it shows with the holder's own clock.
//!
//! Nothing here reads the client's wall clock: the holder's clock is `Clock::Boot`, which is never
//! set.

use std::{collections::HashMap, time::Duration};

use crate::{Clock, Instant, StoreEvent, StoreEventSender, StoreEvents, sync::Mutex};

/// Steps up to this size are not reported, since no clock is read more exactly.
const LEAST: i128 = 10_000_000;

/// The assumed bound on drift for deadlines: one thousandth of the time that passes.
const DRIFT: i128 = 1000;

/// The margin for drift takes at most this part of the time that the sender waits.
const MARGIN: i128 = 4;

/// The clock of a store as a backend sees it in the answers.
///
/// Leases run by the store's clock, so that a step of it ends them early or late. A backend whose
/// store tells its time shows each sight of it here, and tells of steps by
/// [`StoreEvent::ClockStep`](crate::StoreEvent).
///
/// It keeps between which bounds the store's clock is ahead of the holder's: the request was sent
/// before the store read its clock, and the answer came after. A step is a change of that by more
/// than 1 % of the time that has passed, the uncertainty of both sights, and 10 ms. So clocks that
/// drift apart by less than 1 % are never taken for a step, however long answers take.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreClock(Option<Bounds>);

/// A step of a store's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockStep {
    /// Whether it was set forward, which ends leases early.
    pub forward: bool,
    /// By how much, at the most.
    pub by: Duration,
}

/// How far the store's clock was ahead, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    low: i128,
    high: i128,
    /// When the request was sent and the answer came.
    sent: Instant,
    answered: Instant,
}

impl StoreClock {
    /// One that has not been looked at.
    pub const fn new() -> Self {
        Self(None)
    }

    /// The store's clock showed `micros` at some time between these two of the holder's clock: the
    /// step since the last sight, if there was one.
    pub fn observe(&mut self, micros: u64, sent: Instant, answered: Instant) -> Option<ClockStep> {
        let shown = i128::from(micros) * 1000;
        let (sent, answered) = (sent.min(answered), answered.max(sent));
        let low = shown - i128::from(answered.as_nanos());
        let high = shown - i128::from(sent.as_nanos());
        let seen = Bounds { low, high, sent, answered };
        let last = self.0.replace(seen)?;
        // From the earlier request to the later answer, since answers may come in another order
        // than the requests. The longer time allows more drift, and so never reports drift as a
        // step.
        let passed = answered.max(last.answered).since(sent.min(last.sent));
        let drift = i128::try_from(passed.as_nanos() / 100).unwrap_or(i128::MAX / 4);
        let slack = drift + LEAST;
        if low > last.high + slack {
            return Some(step(true, high - last.low));
        }
        if high < last.low - slack {
            return Some(step(false, last.high - low));
        }
        // Both are true, so what both allow is: a slow answer does not blur what is known.
        let (low, high) = (low.max(last.low - drift), high.min(last.high + drift));
        if low <= high {
            self.0 = Some(Bounds { low, high, ..seen });
        }
        None
    }

    /// Until what time of the store's clock, in microseconds, a request may be executed that is sent
    /// `now` and whose sender waits for `patience`. `None` before the first sight.
    ///
    /// When the store's clock shows this time or less, the sender still waits. So a store that
    /// refuses a request past its deadline does nothing for somebody who has gone, however long
    /// the request took. Each sending has a deadline of its own, which no answer may come before:
    /// all that was observed was answered by `now`.
    ///
    /// The deadline rests on the least that the clock can show by now, minus 0.1 % of the time since
    /// it was seen, for drift, but no more than a quarter of the patience: a store that was not asked
    /// anything for long is asked once, not twice. So clocks that drift apart must be seen once in
    /// 250 patiences, or a deadline is late by their drift in the time beyond. One is late by a step
    /// back of the clock that has not been seen yet. One that is too early, after a step forward,
    /// has the request refused: the answer shows the clock, and the sender may ask again.
    pub fn deadline(&self, now: Instant, patience: Duration) -> Option<u64> {
        let Bounds { low, answered, .. } = self.0?;
        let nanos = |time: Duration| i128::try_from(time.as_nanos()).unwrap_or(i128::MAX / 4);
        let patience = nanos(patience);
        let passed = nanos(now.since(answered)) + patience;
        let margin = (passed / DRIFT).min(patience / MARGIN);
        let deadline = low + i128::from(now.as_nanos()) + patience - margin;
        Some(u64::try_from(deadline.max(0) / 1000).unwrap_or(u64::MAX))
    }
}

fn step(forward: bool, nanos: i128) -> ClockStep {
    let by = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
    ClockStep { forward, by }
}

/// The clocks of a store's parts, and whoever believes in leases that run by them.
///
/// It tells of steps what [`Backend::events`](crate::Backend::events) promises to tell.
#[derive(Debug)]
pub struct StoreClocks {
    /// Of each [shard](crate::Backend::shard). After a failover it is another server's, which the
    /// leases go by from then on.
    clocks: Mutex<HashMap<u32, StoreClock>>,
    events: StoreEventSender,
}

/// More steps than one failover makes of a store in many parts.
const EVENTS: usize = 256;

impl StoreClocks {
    /// Some that have not been looked at.
    pub fn new() -> Self {
        Self { clocks: Mutex::default(), events: StoreEventSender::new(EVENTS) }
    }

    /// An answer that has just come, to what was sent then by [`Clock::Boot`], shows the clock of
    /// this shard, in microseconds.
    pub fn observe(&self, shard: u32, micros: u64, sent: Instant) {
        // The event is sent under the lock. So subscribers get the steps of a shard in the order in
        // which they were detected. The send does not block: a full channel drops the oldest event,
        // and the subscriber learns that it missed some.
        let mut clocks = self.clocks.lock();
        let step = clocks.entry(shard).or_default().observe(micros, sent, Clock::Boot.now());
        if let Some(ClockStep { forward, by }) = step {
            self.events.send(StoreEvent::ClockStep { shard, forward, by, seen: sent });
        }
    }

    /// Until what time of this shard's clock a request may be executed that is sent now, as
    /// [`StoreClock::deadline`] tells.
    pub fn deadline(&self, shard: u32, patience: Duration) -> Option<u64> {
        let clocks = self.clocks.lock();
        clocks.get(&shard).and_then(|clock| clock.deadline(Clock::Boot.now(), patience))
    }

    /// The steps from now on.
    pub fn events(&self) -> StoreEvents {
        self.events.subscribe()
    }
}

impl Default for StoreClocks {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Far from the holder's clock, which starts with the machine.
    const EPOCH: u64 = 1_700_000_000_000_000;
    const SECOND: u64 = 1_000_000_000;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    /// A sight of a store whose clock is ahead by so much: when it was sent, how long it took to
    /// the store and back, in nanoseconds.
    fn look(
        clock: &mut StoreClock,
        sent: u64,
        to: u64,
        back: u64,
        ahead: i64,
    ) -> Option<ClockStep> {
        let read = (sent + to).checked_add_signed(ahead).unwrap();
        clock.observe(EPOCH + read / 1000, at(sent), at(sent + to + back))
    }

    #[test]
    fn a_clock_step_is_reported_once_with_its_size() {
        for (ahead, forward) in
            [(5 * SECOND.cast_signed(), true), (-5 * SECOND.cast_signed(), false)]
        {
            let mut clock = StoreClock::new();
            let base = 100 * SECOND;
            assert_eq!(look(&mut clock, base, 1000, 1000, 0), None);
            assert_eq!(look(&mut clock, base + SECOND, 1000, 1000, 0), None);
            let told = look(&mut clock, base + 2 * SECOND, 1000, 1000, ahead).unwrap();
            assert_eq!(told.forward, forward);
            assert!(told.by >= Duration::from_secs(5) - Duration::from_micros(1), "{told:?}");
            assert!(told.by < Duration::from_millis(5001), "{told:?}");
            assert_eq!(look(&mut clock, base + 3 * SECOND, 1000, 1000, ahead), None);
        }
    }

    #[test]
    fn a_slow_answer_does_not_hide_a_step() {
        let mut clock = StoreClock::new();
        let base = 100 * SECOND;
        assert_eq!(look(&mut clock, base, 1000, 1000, 0), None);
        // It can't be told from this one, which took ten seconds, but it is not forgotten.
        assert_eq!(look(&mut clock, base + SECOND, 1000, 10 * SECOND, SECOND.cast_signed()), None);
        let told = look(&mut clock, base + 12 * SECOND, 1000, 1000, SECOND.cast_signed());
        assert!(told.is_some_and(|step| step.forward));
    }

    const HOUR: u64 = 3_600_000_000;

    #[test]
    fn each_shard_has_a_clock_of_its_own() {
        let (watch, epoch) = (StoreClocks::new(), EPOCH);
        let mut events = watch.events();
        for (shard, shows) in [(1, epoch), (2, epoch + HOUR), (1, epoch), (2, epoch + HOUR)] {
            watch.observe(shard, shows, Clock::Boot.now());
        }
        assert!(events.try_recv().is_none());
        let sent = Clock::Boot.now();
        watch.observe(1, epoch + HOUR, sent);
        let told = events.try_recv();
        assert!(
            matches!(told, Some(StoreEvent::ClockStep { shard: 1, forward: true, seen, .. }) if seen == sent),
            "{told:?}"
        );
        assert!(events.try_recv().is_none());
    }

    #[test]
    fn a_clock_step_is_reported_to_all_receivers() {
        let watch = StoreClocks::new();
        let (mut one, mut two) = (watch.events(), watch.events());
        watch.observe(0, EPOCH, Clock::Boot.now());
        watch.observe(0, EPOCH, Clock::Boot.now());
        assert!(one.try_recv().is_none());
        let sent = Clock::Boot.now();
        watch.observe(0, EPOCH + HOUR, sent);
        for events in [&mut one, &mut two] {
            match events.try_recv() {
                Some(StoreEvent::ClockStep { shard: 0, forward: true, by, seen }) => {
                    assert!(by >= Duration::from_secs(3599) && seen == sent, "{by:?}, {seen:?}");
                }
                other => panic!("{other:?}"),
            }
        }
        watch.observe(0, EPOCH, Clock::Boot.now());
        let back = one.try_recv();
        assert!(matches!(back, Some(StoreEvent::ClockStep { forward: false, .. })), "{back:?}");
    }

    #[test]
    fn a_deadline_needs_a_sight_and_follows_a_step() {
        let (mut clock, patience) = (StoreClock::new(), Duration::from_secs(5));
        assert_eq!(clock.deadline(at(SECOND), patience), None);
        for (sent, ahead) in [(100, 0), (101, 3600), (102, 0)] {
            let sent = sent * SECOND;
            look(&mut clock, sent, 1000, 1000, ahead * SECOND.cast_signed());
            let shown = EPOCH + (sent / 1000).checked_add_signed(ahead * 1_000_000).unwrap();
            let deadline = clock.deadline(at(sent + 2000), patience).unwrap();
            assert!((shown + 4_990_000..=shown + 5_000_002).contains(&deadline), "{deadline}");
        }
        // However long ago the store was seen, there is time for an answer.
        let later = 100_000 * SECOND;
        let deadline = clock.deadline(at(later), patience).unwrap();
        assert!(deadline > EPOCH + later / 1000 + 3_500_000, "{deadline}");
        assert_eq!(clock.deadline(at(later), Duration::MAX), Some(u64::MAX));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn clock_drift_is_not_reported_as_a_step(
            rate in -99i64..=99,
            sights in prop::collection::vec(
                (0u64..60 * SECOND, 0u64..20 * SECOND, 0u64..20 * SECOND), 1..40
            ),
        ) {
            let (mut clock, mut sent) = (StoreClock::new(), 1000 * SECOND);
            for (passed, to, back) in sights {
                // The next may be sent before the last was answered.
                sent += passed;
                let drift = i64::try_from((sent + to) / 10_000).unwrap() * rate;
                prop_assert_eq!(look(&mut clock, sent, to, back, drift), None);
            }
        }

        #[test]
        fn a_step_beyond_the_slack_is_told(
            forward in any::<bool>(),
            passed in 0u64..60 * SECOND,
            delays in prop::array::uniform4(0u64..2 * SECOND),
            beyond in 2_000u64..100 * SECOND,
        ) {
            let (mut clock, first) = (StoreClock::new(), 200 * SECOND);
            let [to, back, then_to, then_back] = delays;
            prop_assert_eq!(look(&mut clock, first, to, back, 0), None);
            let next = first + to + back + passed;
            let all = next + then_to + then_back - first;
            let size = all / 100 + to + back + then_to + then_back + 10_000_000 + beyond;
            let ahead = if forward { size.cast_signed() } else { -size.cast_signed() };
            let told = look(&mut clock, next, then_to, then_back, ahead).unwrap();
            prop_assert_eq!(told.forward, forward);
            prop_assert!(told.by.as_nanos() + 2_000 >= u128::from(size), "{:?} of {}", told, size);
        }

        #[test]
        fn a_deadline_has_passed_once_its_sender_stopped_waiting(
            rate in -9i64..=9,
            sights in prop::collection::vec(
                (0u64..60 * SECOND, 0u64..20 * SECOND, 0u64..20 * SECOND), 1..20
            ),
            idle in 0u64..200 * SECOND,
            patience in SECOND..10 * SECOND,
            late in 1u64..600 * SECOND,
        ) {
            let (mut clock, mut sent, mut now) = (StoreClock::new(), 1000 * SECOND, 0);
            let shows = |time: u64| {
                let drift = i64::try_from(time / 10_000).unwrap() * rate;
                EPOCH + time.checked_add_signed(drift).unwrap() / 1000
            };
            for (passed, to, back) in sights {
                sent += passed;
                clock.observe(shows(sent + to), at(sent), at(sent + to + back));
                now = now.max(sent + to + back);
            }
            now += idle;
            let deadline = clock.deadline(at(now), Duration::from_nanos(patience)).unwrap();
            // A microsecond is all that the store's clock tells apart.
            prop_assert!(shows(now + patience + late + 1000) > deadline);
        }
    }
}
