//! The version that a change of the golden files needs. Before 1.0, a breaking change raises the minor
//! version; from then on it raises the major version, and an addition the minor one.

use std::collections::HashSet;

/// A version number, without a pre-release part.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Version {
    major: u64,
    minor: u64,
    patch: u64,
}

impl Version {
    /// Reads `1.2.3`, `v1.2.3` or `1.2.3-rc.1`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut numbers = text.split('-').next()?.split('.').map(|number| number.parse().ok());
        let version =
            Self { major: numbers.next()??, minor: numbers.next()??, patch: numbers.next()?? };
        numbers.next().is_none().then_some(version)
    }

    /// Returns the smallest version that may contain this change since a release of `self`.
    #[must_use]
    pub fn after(self, change: Change) -> Self {
        let Self { major, minor, .. } = self;
        match (change, major) {
            (Change::Breaking, 1..) => Self { major: major + 1, minor: 0, patch: 0 },
            (Change::Breaking, 0) | (Change::Addition, 1..) => {
                Self { major, minor: minor + 1, patch: 0 }
            }
            (Change::Addition, 0) | (Change::None, _) => self,
        }
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// How a golden file changed, from the smallest change to the largest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[expect(clippy::exhaustive_enums, reason = "only the tests of this repository use it")]
pub enum Change {
    /// Both texts have the same lines.
    None,
    /// The new text has further lines.
    Addition,
    /// A line was removed or changed.
    Breaking,
}

impl Change {
    /// Compares the lines of two texts. Their order does not matter.
    #[must_use]
    pub fn between(old: &str, new: &str) -> Self {
        let (old, new): (HashSet<&str>, HashSet<&str>) =
            (old.lines().collect(), new.lines().collect());
        match (old.is_subset(&new), new.is_subset(&old)) {
            (false, _) => Self::Breaking,
            (true, false) => Self::Addition,
            (true, true) => Self::None,
        }
    }
}

#[test]
fn a_removed_or_changed_line_is_a_breaking_change() {
    let old = "pub fn a()\npub fn b(u32)\n";
    assert_eq!(Change::between(old, "pub fn b(u32)\npub fn a()\n"), Change::None);
    assert_eq!(Change::between(old, "pub fn a()\npub fn b(u32)\npub fn c()\n"), Change::Addition);
    assert_eq!(Change::between(old, "pub fn a()\n"), Change::Breaking);
    assert_eq!(Change::between(old, "pub fn a()\npub fn b(u64)\n"), Change::Breaking);
    assert_eq!(Change::between(old, ""), Change::Breaking);
}

#[test]
fn a_breaking_change_before_1_0_raises_the_minor_version() {
    let version = |text| Version::parse(text).expect("a version");
    let released = version("v0.1.4");
    assert_eq!(released.after(Change::None), released);
    assert_eq!(released.after(Change::Addition), released);
    assert_eq!(released.after(Change::Breaking), version("0.2.0"));
    assert!(version("0.1.5") < released.after(Change::Breaking));
    assert!(version("0.10.0") > released.after(Change::Breaking));

    let released = version("1.2.3");
    assert_eq!(released.after(Change::None), released);
    assert_eq!(released.after(Change::Addition), version("1.3.0"));
    assert_eq!(released.after(Change::Breaking), version("2.0.0"));
}

#[test]
fn only_three_numbers_are_a_version() {
    assert_eq!(
        Version::parse("1.2.3-rc.1").map(|version| version.to_string()).as_deref(),
        Some("1.2.3")
    );
    for text in ["", "1.2", "1.2.3.4", "1.2.x", "v", "one"] {
        assert_eq!(Version::parse(text), None, "{text}");
    }
}
