//! Detects steps of a store's clock: compares the times that it shows with the holder's own clock.
//!
//! Nothing here reads the client's wall clock: the holder's clock is `Clock::Boot`, which is never
//! set.

use std::{collections::HashMap, time::Duration};

use crate::{Clock, Instant, StoreEvent, StoreEventSender, StoreEvents, sync::Mutex};

/// The size up to which steps are not reported, in nanoseconds, since clocks are not read more
/// exactly.
const LEAST: i128 = 10_000_000;

/// The inverse of the assumed drift for deadlines: one thousandth of the time that passes.
const DRIFT: i128 = 1000;

/// The inverse of the share of the sender's wait that the margin for drift may take.
const MARGIN: i128 = 4;

/// The clock of a store, as a backend sees it in the answers.
///
/// Leases expire by the store's clock, so a step of that clock ends them early or late. If a store
/// shows its time, the backend passes each clock sample to this type, and reports steps as
/// [`StoreEvent::ClockStep`](crate::StoreEvent).
///
/// The type keeps bounds for the difference between the store's clock and the holder's: the request
/// was sent before the store read its clock, and the answer came after. A step is a change of that
/// difference by more than 1 % of the time that has passed, plus the uncertainty of both samples,
/// plus 10 ms. So clocks that drift apart by less than 1 % are never reported as a step, however
/// long answers take.
///
/// Answers may arrive in another order than the store gave them, for example over several
/// connections. So after a step, an answer may still show the clock from before it. Such an answer
/// is ignored: its request was sent before the step was seen, and it fits the earlier difference.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreClock {
    bounds: Option<Bounds>,
    /// The bounds from before the last step, and the time at which that step was seen.
    before: Option<(Bounds, Instant)>,
}

/// A step of a store's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockStep {
    /// Whether the clock was set forward, which ends leases early.
    pub forward: bool,
    /// The largest possible size of the step.
    pub by: Duration,
}

/// The difference of the store's clock to the holder's, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    low: i128,
    high: i128,
    /// The times at which the request was sent and the answer arrived.
    sent: Instant,
    answered: Instant,
}

impl StoreClock {
    /// Creates a clock without samples.
    pub const fn new() -> Self {
        Self { bounds: None, before: None }
    }

    /// Records that the store's clock showed `micros` between `sent` and `answered` of the holder's
    /// clock. Returns the step since the last sample, if one occurred.
    pub fn observe(&mut self, micros: u64, sent: Instant, answered: Instant) -> Option<ClockStep> {
        let shown = i128::from(micros) * 1000;
        let (sent, answered) = (sent.min(answered), answered.max(sent));
        let low = shown - i128::from(answered.as_nanos());
        let high = shown - i128::from(sent.as_nanos());
        let seen = Bounds { low, high, sent, answered };
        let Some(last) = self.bounds else {
            self.bounds = Some(seen);
            return None;
        };
        let Some(step) = seen.step_since(&last) else {
            self.bounds = Some(seen.within(&last));
            return None;
        };
        if let Some((before, noticed)) = self.before
            && sent < noticed
            && seen.step_since(&before).is_none()
        {
            return None;
        }
        (self.bounds, self.before) = (Some(seen), Some((last, answered)));
        Some(step)
    }

    /// Returns the deadline of a request that is sent `now` and whose sender waits for the response
    /// timeout: the time of the store's clock, in microseconds, until which the store may execute
    /// it. `None` before the first sample.
    ///
    /// While the store's clock shows the deadline or less, the sender still waits. So a store that
    /// refuses requests after their deadline never acts for a sender that has given up, however
    /// long the request took. Each attempt needs a new deadline, and all samples must have been
    /// answered by `now`.
    ///
    /// The deadline is computed from the smallest time that the clock can show now, minus 0.1 % of
    /// the time since the last sample, for drift. This margin is at most a quarter of the timeout, so
    /// that a request after a long pause is not refused and needs no second attempt. So if the
    /// clocks drift apart, a sample is needed at least once in 250 times the timeout; after that,
    /// the deadline is late by the drift. A step back that has not been seen makes the
    /// deadline late by the step. After a step forward the deadline is too early, and the store
    /// refuses the request: the answer shows the clock, and the sender may retry.
    pub fn deadline(&self, now: Instant, response_timeout: Duration) -> Option<u64> {
        let Bounds { low, answered, .. } = self.bounds?;
        let nanos = |time: Duration| i128::try_from(time.as_nanos()).unwrap_or(i128::MAX / 4);
        let response_timeout = nanos(response_timeout);
        let passed = nanos(now.since(answered)) + response_timeout;
        let margin = (passed / DRIFT).min(response_timeout / MARGIN);
        let deadline = low + i128::from(now.as_nanos()) + response_timeout - margin;
        Some(u64::try_from(deadline.max(0) / 1000).unwrap_or(u64::MAX))
    }

    /// Returns the smallest and the largest time that the store's clock can show now, in microseconds.
    /// `None` before the first sample. The drift is 0.1 % of the time since then. A step that has not
    /// been seen does not count.
    pub fn range(&self, now: Instant) -> Option<(u64, u64)> {
        let Bounds { low, high, answered, .. } = self.bounds?;
        let drift = i128::try_from(now.since(answered).as_nanos()).unwrap_or(i128::MAX / 4) / DRIFT;
        let shown = |difference: i128| {
            let shown = difference + i128::from(now.as_nanos());
            u64::try_from(shown.max(0) / 1000).unwrap_or(u64::MAX)
        };
        Some((shown(low - drift), shown(high + drift).saturating_add(1)))
    }
}

impl Bounds {
    /// Returns the largest difference by which the two clocks may have drifted apart between these
    /// samples.
    fn drift_since(&self, last: &Self) -> i128 {
        // From the earlier request to the later answer, since answers may arrive in another order
        // than the requests. The longer time allows more drift, so drift is never reported as a
        // step.
        let passed = self.answered.max(last.answered).since(self.sent.min(last.sent));
        i128::try_from(passed.as_nanos() / 100).unwrap_or(i128::MAX / 4)
    }

    fn step_since(&self, last: &Self) -> Option<ClockStep> {
        let slack = self.drift_since(last) + LEAST;
        if self.low > last.high + slack {
            return Some(step(true, self.high - last.low));
        }
        (self.high < last.low - slack).then(|| step(false, last.high - self.low))
    }

    /// Returns the intersection of both ranges, since both hold: a slow answer does not widen the
    /// known range.
    fn within(self, last: &Self) -> Self {
        let drift = self.drift_since(last);
        let (low, high) = (self.low.max(last.low - drift), self.high.min(last.high + drift));
        if low <= high { Self { low, high, ..self } } else { self }
    }
}

fn step(forward: bool, nanos: i128) -> ClockStep {
    let by = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
    ClockStep { forward, by }
}

/// The clocks of a store's parts, and the holders whose leases depend on them.
///
/// It sends the clock steps that [`Backend::events`](crate::Backend::events) promises.
#[derive(Debug)]
pub struct StoreClocks {
    /// The clock of each [shard](crate::Backend::shard). After a failover it is the clock of the
    /// new server, which the leases then follow.
    clocks: Mutex<HashMap<u32, StoreClock>>,
    events: StoreEventSender,
}

/// The capacity of the channel: more steps than one failover causes in a store of many parts.
const EVENTS: usize = 256;

impl StoreClocks {
    /// Creates clocks without samples.
    pub fn new() -> Self {
        Self { clocks: Mutex::default(), events: StoreEventSender::new(EVENTS) }
    }

    /// Records an answer that has just arrived: it shows the clock of this shard, in microseconds,
    /// and its request was sent at `sent` by [`Clock::Boot`].
    pub fn observe(&self, shard: u32, micros: u64, sent: Instant) {
        // The event is sent under the lock. So subscribers get the steps of a shard in the order in
        // which they were detected. The send does not block: a full channel drops the oldest event,
        // and the subscriber gets an error that counts the missed events.
        let mut clocks = self.clocks.lock();
        let step = clocks.entry(shard).or_default().observe(micros, sent, Clock::Boot.now());
        if let Some(ClockStep { forward, by }) = step {
            self.events.send(StoreEvent::ClockStep { shard, forward, by, seen: sent });
        }
    }

    /// Returns the deadline of a request that is sent now, by this shard's clock, as
    /// [`StoreClock::deadline`] does.
    pub fn deadline(&self, shard: u32, response_timeout: Duration) -> Option<u64> {
        let clocks = self.clocks.lock();
        clocks.get(&shard).and_then(|clock| clock.deadline(Clock::Boot.now(), response_timeout))
    }

    /// Returns a receiver of all future steps.
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

    /// The start of the store's clock, far from the holder's clock, which starts with the machine.
    const EPOCH: u64 = 1_700_000_000_000_000;
    const SECOND: u64 = 1_000_000_000;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    /// Takes a sample of a store's clock that is ahead by `ahead`. The request is sent at `sent`,
    /// takes `to` to the store, and its answer takes `back`. All times are in nanoseconds.
    fn sample(
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
            assert_eq!(sample(&mut clock, base, 1000, 1000, 0), None);
            assert_eq!(sample(&mut clock, base + SECOND, 1000, 1000, 0), None);
            let step = sample(&mut clock, base + 2 * SECOND, 1000, 1000, ahead).unwrap();
            assert_eq!(step.forward, forward);
            assert!(step.by >= Duration::from_secs(5) - Duration::from_micros(1), "{step:?}");
            assert!(step.by < Duration::from_millis(5001), "{step:?}");
            assert_eq!(sample(&mut clock, base + 3 * SECOND, 1000, 1000, ahead), None);
        }
    }

    #[test]
    fn a_slow_answer_does_not_hide_a_step() {
        let mut clock = StoreClock::new();
        let base = 100 * SECOND;
        assert_eq!(sample(&mut clock, base, 1000, 1000, 0), None);
        // This sample took ten seconds, so the step can't be detected yet; the next sample shows
        // it.
        assert_eq!(
            sample(&mut clock, base + SECOND, 1000, 10 * SECOND, SECOND.cast_signed()),
            None
        );
        let step = sample(&mut clock, base + 12 * SECOND, 1000, 1000, SECOND.cast_signed());
        assert!(step.is_some_and(|step| step.forward));
    }

    #[test]
    fn an_overtaken_answer_reports_no_step() {
        for ahead in [5 * SECOND.cast_signed(), -5 * SECOND.cast_signed()] {
            let mut clock = StoreClock::new();
            let base = 100 * SECOND;
            assert_eq!(sample(&mut clock, base, 1000, 1000, 0), None);
            let step = sample(&mut clock, base + SECOND, 1000, 1000, ahead);
            assert!(step.is_some_and(|step| step.forward == (ahead > 0)));
            // The store read its clock before the step, and the answer took long.
            assert_eq!(sample(&mut clock, base + SECOND - 5000, 1000, SECOND, 0), None);
            assert_eq!(sample(&mut clock, base + 2 * SECOND, 1000, 1000, ahead), None);
            // A request that was sent later shows a step.
            let back = sample(&mut clock, base + 3 * SECOND, 1000, 1000, 0);
            assert!(back.is_some_and(|step| step.forward == (ahead < 0)));
        }
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
        let step = events.try_recv();
        assert!(
            matches!(step, Some(StoreEvent::ClockStep { shard: 1, forward: true, seen, .. }) if seen == sent),
            "{step:?}"
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
    fn the_range_is_that_of_the_best_sample_and_grows() {
        let mut clock = StoreClock::new();
        let base = 100 * SECOND;
        assert_eq!(clock.range(at(base)), None);
        sample(&mut clock, base, 20_000_000, 20_000_000, 0);
        let answered = base + 40_000_000;
        let shown = EPOCH + answered / 1000;
        let range = |by: u64| Some((shown - by, shown + by + 1));
        assert_eq!(clock.range(at(answered)), range(20_000));
        let later = clock.range(at(answered + 30 * SECOND));
        assert_eq!(later, range(50_000).map(|(a, b)| (a + 30_000_000, b + 30_000_000)));
        sample(&mut clock, base + SECOND, 1_000_000, 1_000_000, 0);
        let (low, high) = clock.range(at(base + SECOND + 2_000_000)).unwrap();
        assert_eq!(high - low, 2001);
    }

    #[test]
    fn a_deadline_needs_a_sight_and_follows_a_step() {
        let (mut clock, response_timeout) = (StoreClock::new(), Duration::from_secs(5));
        assert_eq!(clock.deadline(at(SECOND), response_timeout), None);
        for (sent, ahead) in [(100, 0), (101, 3600), (102, 0)] {
            let sent = sent * SECOND;
            sample(&mut clock, sent, 1000, 1000, ahead * SECOND.cast_signed());
            let shown = EPOCH + (sent / 1000).checked_add_signed(ahead * 1_000_000).unwrap();
            let deadline = clock.deadline(at(sent + 2000), response_timeout).unwrap();
            assert!((shown + 4_990_000..=shown + 5_000_002).contains(&deadline), "{deadline}");
        }
        // After any pause, a request still has time for an answer.
        let later = 100_000 * SECOND;
        let deadline = clock.deadline(at(later), response_timeout).unwrap();
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
                // The next request may be sent before the answer to the last.
                sent += passed;
                let drift = i64::try_from((sent + to) / 10_000).unwrap() * rate;
                prop_assert_eq!(sample(&mut clock, sent, to, back, drift), None);
            }
        }

        #[test]
        fn a_step_beyond_the_slack_is_reported(
            forward in any::<bool>(),
            passed in 0u64..60 * SECOND,
            delays in prop::array::uniform4(0u64..2 * SECOND),
            beyond in 2_000u64..100 * SECOND,
        ) {
            let (mut clock, first) = (StoreClock::new(), 200 * SECOND);
            let [to, back, then_to, then_back] = delays;
            prop_assert_eq!(sample(&mut clock, first, to, back, 0), None);
            let next = first + to + back + passed;
            let all = next + then_to + then_back - first;
            let size = all / 100 + to + back + then_to + then_back + 10_000_000 + beyond;
            let ahead = if forward { size.cast_signed() } else { -size.cast_signed() };
            let step = sample(&mut clock, next, then_to, then_back, ahead).unwrap();
            prop_assert_eq!(step.forward, forward);
            prop_assert!(step.by.as_nanos() + 2_000 >= u128::from(size), "{:?} of {}", step, size);
        }

        #[test]
        fn a_deadline_has_passed_once_its_sender_stopped_waiting(
            rate in -9i64..=9,
            sights in prop::collection::vec(
                (0u64..60 * SECOND, 0u64..20 * SECOND, 0u64..20 * SECOND), 1..20
            ),
            idle in 0u64..200 * SECOND,
            response_timeout in SECOND..10 * SECOND,
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
            let deadline = clock.deadline(at(now), Duration::from_nanos(response_timeout)).unwrap();
            // The resolution of the store's clock is one microsecond.
            prop_assert!(shows(now + response_timeout + late + 1000) > deadline);
        }
    }
}
