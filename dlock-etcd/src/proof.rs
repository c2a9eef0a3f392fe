//! How long the servers are known to keep the lease of a session.
//!
//! A keepalive proves nothing by itself: any member that assumes that it leads answers it from
//! memory, for example an isolated leader, or one that was stopped while another was elected. So a
//! beat is
//!
//! 1. a keepalive, sent at `s` and answered in term `t`,
//! 2. a vote, a request that a majority commits, sent after that answer and answered in term `t`,
//! 3. a second vote, sent after the first was answered, and answered in term `t`,
//!
//! all by the same member, and `t` is the term in which the lease was granted. The lease then ends no
//! earlier than `s` plus its TTL. The reason: the term in a header is that of the last entry that the
//! member has applied, and the header of a keepalive is filled before the renewal. So the member knew
//! the leader of `t` or a later one, and asked that one to renew. The votes show that no later leader
//! had been elected: `t` led after the renewal, and a later leader gives each lease its whole TTL
//! from its election on. One vote is not enough, because a member that was brought up to date by a
//! snapshot shows its old term until it applies another entry. The first vote is such an entry, so
//! the answer to the second one shows a term that is no earlier than that of the first. How long a
//! vote takes does not matter.
//!
//! The leader of an earlier term is the danger. If it was stopped and continues, it may end the
//! leases that it remembers as expired, although a later leader has renewed them: no version of etcd
//! prevents this. But it can't know a lease that was granted after its term: it applies the entry of
//! the grant only after it has learned of the later term. So after each election the session requests
//! a new lease, and moves its keys to it: see [`lease`](crate::lease).
//!
//! A new lease is a beat at the time at which it was requested. For the term of its grant, the
//! session takes one that a header has shown before the request, so the grant's term is no earlier.
//! If it is later, no heartbeat counts, because the votes come after the grant and show its term. The
//! next heartbeat then requests another lease.
//!
//! Answers of acquires and releases are votes, too. So under load, a beat costs one keepalive.

use dlock_core::Instant;

/// The current lease, and the last keepalive that was answered, until it is proven.
#[derive(Debug)]
pub(crate) struct Proof {
    /// The term in which the lease was granted, or an earlier one, in which no heartbeat counts.
    granted: u64,
    keepalive: Option<Keepalive>,
}

#[derive(Clone, Copy, Debug)]
struct Keepalive {
    /// The connection, which is to one member.
    link: u64,
    sent: Instant,
    /// The time from which the next vote counts: the answer to the keepalive, or to the first vote.
    from: Instant,
    votes: u32,
}

impl Proof {
    /// Begins with a new lease. A header has shown this term before the lease was requested.
    pub(crate) fn of(granted: u64) -> Self {
        Self { granted, keepalive: None }
    }

    /// Returns the term in which the lease was granted, or an earlier one.
    pub(crate) fn granted(&self) -> u64 {
        self.granted
    }

    /// Records the answer to a keepalive. Returns false if its term is later than that of the grant:
    /// then it counts for nothing, and the session needs a new lease.
    pub(crate) fn keepalive(
        &mut self,
        link: u64,
        term: u64,
        sent: Instant,
        answered: Instant,
    ) -> bool {
        #[cfg(dlock_sim)]
        if dlock_core::sim::has_mistake("lease-of-old-term") {
            self.granted = self.granted.max(term);
        }
        let same = term == self.granted;
        self.keepalive = same.then_some(Keepalive { link, sent, from: answered, votes: 0 });
        term <= self.granted
    }

    /// Records the answer to a vote. Returns the time of the beat that it completes, if it does.
    pub(crate) fn vote(
        &mut self,
        link: u64,
        term: u64,
        sent: Instant,
        answered: Instant,
    ) -> Option<Instant> {
        let keepalive = self.keepalive.as_mut()?;
        if link != keepalive.link || sent < keepalive.from {
            return None;
        }
        if term != self.granted {
            // There was an election.
            self.keepalive = None;
            return None;
        }
        (keepalive.from, keepalive.votes) = (answered, keepalive.votes + 1);
        if keepalive.votes < 2 {
            return None;
        }
        self.keepalive.take().map(|keepalive| keepalive.sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    /// Records a keepalive in term 5 from 10 to 20, and returns the beats of the votes behind it.
    fn votes(votes: &[(u64, u64, u64, u64)]) -> Vec<Option<Instant>> {
        let mut proof = Proof::of(5);
        assert!(proof.keepalive(1, 5, at(10), at(20)));
        let beats = votes
            .iter()
            .map(|(link, term, sent, answered)| proof.vote(*link, *term, at(*sent), at(*answered)));
        beats.collect()
    }

    #[test]
    fn two_votes_in_the_same_term_prove_a_keepalive() {
        assert_eq!(votes(&[(1, 5, 20, 30), (1, 5, 30, 40)]), [None, Some(at(10))]);
        assert_eq!(votes(&[(1, 5, 20, 30), (1, 5, 30, 40), (1, 5, 40, 50)])[2], None);
        assert_eq!(votes(&[(1, 5, 20, 3_020), (1, 5, 3_020, 9_020)]), [None, Some(at(10))], "slow");
    }

    #[test]
    fn other_votes_prove_nothing() {
        let good = (1, 5, 20, 30);
        for (why, second) in [
            ("sent before the first was answered", (1, 5, 29, 40)),
            ("another member", (2, 5, 30, 40)),
            ("another term", (1, 6, 30, 40)),
        ] {
            assert_eq!(votes(&[good, second]), [None, None], "{why}");
        }
        assert_eq!(votes(&[(1, 5, 19, 30), good])[1], None, "sent before the keepalive's answer");
        let after_election = votes(&[(1, 6, 20, 30), (1, 6, 30, 40), (1, 6, 40, 50)]);
        assert_eq!(after_election, [None; 3]);
    }

    #[test]
    fn a_lease_is_kept_only_in_the_term_of_its_grant() {
        for (granted, answered, is_enough) in [(5, 6, false), (5, 4, true)] {
            let mut proof = Proof::of(granted);
            assert_eq!(proof.keepalive(1, answered, at(10), at(20)), is_enough);
            for (sent, heard) in [(20, 30), (30, 40), (40, 50)] {
                assert_eq!(proof.vote(1, answered, at(sent), at(heard)), None);
            }
        }
    }
}
