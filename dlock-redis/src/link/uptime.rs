//! The known run time of a server, for the restart guard.
//!
//! A server computes its uptime by its wall clock. If that was set forward since the start, the
//! uptime is too long. So it is not used. Each run of a server has an id (`run_id`). The server has
//! run at least since this client first saw that id, by the client's own monotonic clock.
//!
//! A client that starts later should not have to wait for the whole guard. So a client writes marks
//! into the server until the guard is over. A mark contains the id, and for how many milliseconds
//! the client has seen this run. After a restart the server has another id. Then a mark that it has
//! kept, or received from its master, does not count.

use std::time::Duration;

use dlock_core::Instant;

use super::server_info::ServerInfo;

/// One run of a server, which had at least this age at this time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Uptime {
    run_id: String,
    at: Instant,
    age: Duration,
}

impl Uptime {
    /// Returns the run of a server by its information, continued from the earlier knowledge of this
    /// client.
    pub(super) fn of(server_info: &ServerInfo, before: Option<Self>) -> Option<Self> {
        let run_id = server_info.run_id.clone()?;
        let now = Self { run_id, at: server_info.received?, age: server_info.proven_uptime };
        let older = before.filter(|before| {
            before.run_id == now.run_id && before.age_at(now.at) > now.age_at(now.at)
        });
        Some(older.unwrap_or(now))
    }

    fn age_at(&self, now: Instant) -> Duration {
        self.age.saturating_add(now.since(self.at))
    }

    /// Returns the time until it has run for the guard.
    pub(super) fn left(&self, guard: Duration, now: Instant) -> Duration {
        guard.saturating_sub(self.age_at(now))
    }

    /// Returns the mark for other clients.
    pub(super) fn mark(&self, now: Instant) -> String {
        format!("{} {}", self.run_id, self.age_at(now).as_millis())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    const fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn seen(info: &str, mark: Option<&str>, at: Instant) -> ServerInfo {
        ServerInfo::read(info, &HashMap::new(), at).with_mark(mark)
    }

    #[test]
    fn uptime_counts_from_the_first_connection_to_a_run() {
        let guard = Duration::from_secs(10);
        for uptime in ["0", "86400", "-3600", ""] {
            let info = format!("run_id:a\r\nuptime_in_seconds:{uptime}\r\n");
            let first = Uptime::of(&seen(&info, None, at(100)), None);
            let left = |uptime: &Option<Uptime>, now| uptime.as_ref().unwrap().left(guard, now);
            assert_eq!(left(&first, at(100)), guard, "{uptime}");
            assert_eq!(left(&first, at(104)), Duration::from_secs(6), "{uptime}");
            // Another connection to the same run, and to the next.
            let same = Uptime::of(&seen(&info, None, at(107)), first.clone());
            assert_eq!(left(&same, at(107)), Duration::from_secs(3), "{uptime}");
            let next = seen(&info.replace(":a", ":b"), Some("a 99999"), at(107));
            assert_eq!(left(&Uptime::of(&next, first), at(107)), guard, "{uptime}");
        }
        assert_eq!(Uptime::of(&seen("uptime_in_seconds:9", None, at(1)), None), None);
    }

    #[test]
    fn a_mark_counts_for_the_uptime_that_its_writer_has_seen() {
        let guard = Duration::from_secs(10);
        let first = Uptime::of(&seen("run_id:a", None, at(100)), None).unwrap();
        let mark = first.mark(at(104));
        assert_eq!(mark, "a 4000");
        let other = Uptime::of(&seen("run_id:a", Some(&mark), at(7)), None).unwrap();
        assert_eq!(other.left(guard, at(7)), Duration::from_secs(6));
        // A mark that shows less than this client knows changes nothing.
        let known = Uptime::of(&seen("run_id:a", Some("a 1"), at(9)), Some(other)).unwrap();
        assert_eq!(known.left(guard, at(9)), Duration::from_secs(4));
    }
}
