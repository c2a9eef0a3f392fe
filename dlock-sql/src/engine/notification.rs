//! The notification from one client to another that its claim has been granted.
//!
//! It contains the whole grant, so the receiver need not read the row. It may be lost, arrive
//! twice, or arrive before the answer that the claim waits: see [`waiters`](super::waiters).

use std::fmt;

use dlock_core::{
    ClaimId, LockName,
    machine::{Granted, Machine, Micros},
};

/// A notification of a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notification {
    pub(crate) name: LockName,
    pub(crate) granted: Granted,
    /// The time when the first of the leases in the row ends.
    pub(crate) expiry: Micros,
}

impl Notification {
    pub(crate) fn new(name: &LockName, granted: Granted, machine: &Machine) -> Self {
        let expiry = machine.next_expiry().unwrap_or(granted.since);
        Self { name: name.clone(), granted, expiry }
    }

    /// Parses a notification. Returns `None` if the text is not a notification.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let mut words = text.splitn(6, ' ');
        let claim: ClaimId = words.next()?.parse().ok()?;
        let (token, block) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let (since, expiry) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let name = LockName::new(words.next()?).ok()?;
        Some(Self { name, granted: Granted { claim, token, block, since, home: 0 }, expiry })
    }
}

/// The text that is sent. It does not contain the receiver.
impl fmt::Display for Notification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Granted { claim, token, block, since, .. } = self.granted;
        write!(f, "{claim} {token} {block} {since} {} {}", self.expiry, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_is_parsed_as_it_was_sent() {
        for name in ["n", "a  b", "ü;\\"] {
            let name = LockName::new(name).unwrap();
            let claim = ClaimId::from_bits(7);
            let granted = Granted { claim, token: 9, block: 2, since: 5, home: 0 };
            let notification = Notification { name, granted, expiry: 8 };
            assert_eq!(Notification::read(&notification.to_string()), Some(notification));
        }
    }

    /// Clients of other versions send and read the same text.
    #[test]
    fn the_golden_notification_is_written() {
        let golden = "00000000000000000000000000000007 1700000000000000 2 5 8 jobs/7";
        let claim = ClaimId::from_bits(7);
        let granted = Granted { claim, token: 1_700_000_000_000_000, block: 2, since: 5, home: 0 };
        let name = LockName::new("jobs/7").unwrap();
        assert_eq!(Notification { name, granted, expiry: 8 }.to_string(), golden);
    }

    #[test]
    fn an_invalid_notification_is_none() {
        let later = "v9 00000000000000000000000000000007 1 1 1 1 n";
        for text in ["", "x", "00000000000000000000000000000007 1 1 1 n", later] {
            assert_eq!(Notification::read(text), None, "{text}");
        }
    }
}
