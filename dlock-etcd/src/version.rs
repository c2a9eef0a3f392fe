//! The versions of etcd, and the faults of each that matter to locks.

use std::fmt;

/// A version such as 3.5.13.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(u16, u16, u16);

impl Version {
    /// Parses the version that a member reports. Returns `None` if it is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (plain, _) = text.split_once(['-', '+']).unwrap_or((text, ""));
        let mut parts = plain.splitn(3, '.').map(|part| part.parse().ok());
        Some(Self(parts.next()??, parts.next()??, parts.next()??))
    }

    /// Returns whether dlock can't use it.
    pub(crate) fn is_too_old(self) -> bool {
        self < Self(3, 4, 0)
    }

    /// Returns the faults of this version that matter to locks, with the version that repairs them.
    pub(crate) fn faults(self) -> Vec<(&'static str, Self)> {
        let all = [
            (
                "members may disagree on data after a crash under load",
                [Self(3, 4, 0), Self(3, 5, 3)],
            ),
            ("a watch may miss events after a compaction", [Self(3, 4, 36), Self(3, 5, 18)]),
            ("a keepalive may confirm a lease that has ended", [Self(3, 4, 38), Self(3, 5, 23)]),
        ];
        let mut faults = Vec::new();
        for (what, repaired) in all {
            let same_minor = repaired.into_iter().find(|Self(_, minor, _)| *minor == self.1);
            faults.extend(same_minor.filter(|repaired| self < *repaired).map(|by| (what, by)));
        }
        faults
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        for (text, too_old, faults) in [
            ("3.3.27", true, 0),
            ("3.4.23", false, 2),
            ("3.4.36", false, 1),
            ("3.5.1", false, 3),
            ("3.5.18-rc.1", false, 1),
            ("3.5.23", false, 0),
            ("3.7.2", false, 0),
        ] {
            let version = Version::parse(text).unwrap();
            assert_eq!(version.is_too_old(), too_old, "{text}");
            assert_eq!(version.faults().len(), faults, "{text}");
        }
        for text in ["", "3", "3.5", "x.y.z", "not decided"] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
    }
}
