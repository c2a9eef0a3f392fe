//! The formats of stored records.
//!
//! Every record has a format: the row of a lock, the keys of Redis and etcd, the nodes of ZooKeeper.
//! Records without a marker have format 1. Later formats keep the fields of format 1 where they are
//! and add a marker, so that a program can distinguish a record of another format from damage.

use std::fmt;

use crate::{Error, ErrorKind};

/// A format of stored records that this version reads.
///
/// A program reads all formats from [`OLDEST`](Self::OLDEST) to [`NEWEST`](Self::NEWEST). It writes
/// the default, which the previous version reads too, unless it is configured otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Format(u16);

impl Format {
    /// The oldest format that this version reads.
    pub const OLDEST: Self = Self(1);

    /// The newest format that this version reads.
    pub const NEWEST: Self = Self(2);

    /// Returns the number in the marker.
    pub const fn number(self) -> u16 {
        self.0
    }

    /// Returns the format with this number.
    ///
    /// # Errors
    /// The error of [`unknown`](Self::unknown) for a format that this version does not read.
    pub fn known(number: u64) -> Result<Self, Error> {
        let format = u16::try_from(number).ok().map(Self);
        let is_read = |format: &Self| (Self::OLDEST..=Self::NEWEST).contains(format);
        format.filter(is_read).ok_or_else(|| Self::unknown(number))
    }

    /// Returns the error for a record in a format that this version does not read. The caller has
    /// left the record unchanged.
    pub fn unknown(found: impl fmt::Display) -> Error {
        let reads = match Self::NEWEST.0 - Self::OLDEST.0 {
            0 => format!("format {}", Self::NEWEST),
            1 => format!("formats {} and {}", Self::OLDEST, Self::NEWEST),
            _ => format!("formats {} to {}", Self::OLDEST, Self::NEWEST),
        };
        // Another program may have written anything.
        let found = format!("{:.20}", found.to_string());
        Error::new(
            ErrorKind::Protocol,
            format!(
                "a record of the lock has format {found}, and this program reads {reads}: use a \
                 version of dlock that reads format {found}, or set dlock.format={} in the other \
                 programs; the record stays unchanged",
                Self::NEWEST
            ),
        )
    }
}

impl Default for Format {
    /// Returns the format that a program writes unless it is configured otherwise.
    fn default() -> Self {
        Self::OLDEST
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_in_the_range_are_known() {
        for format in [Format::OLDEST, Format::NEWEST, Format::default()] {
            assert_eq!(Format::known(format.number().into()).unwrap(), format);
            assert_eq!(format.to_string(), format.number().to_string());
        }
    }

    #[test]
    fn an_unknown_format_names_both_versions_and_the_remedy() {
        for number in [0, u64::from(Format::NEWEST.number()) + 1, u64::MAX] {
            let error = Format::known(number).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Protocol);
            let text = error.to_string();
            let reads = format!("{number}, and this program reads format");
            assert!(text.contains(&reads) && text.contains("use a version"), "{text}");
        }
        assert!(Format::unknown("x".repeat(1000)).to_string().len() < 400);
    }
}
