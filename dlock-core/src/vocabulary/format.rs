//! The format of stored records.
//!
//! Every record has a format: the row of a lock, the keys of Redis and etcd, the nodes of ZooKeeper.
//! Records without a marker have format 1. Later formats will keep the fields of format 1 where
//! they are and add a marker, so that a program can distinguish a record of another format from
//! damage.

use std::fmt;

use crate::{Error, ErrorKind};

/// The format of the records that this version reads and writes.
pub const FORMAT: u16 = 1;

/// Returns the error for a record in a format that this version does not read. The caller has left
/// the record unchanged.
pub fn unknown_format(found: impl fmt::Display) -> Error {
    // Another program may have written anything.
    let found = format!("{:.20}", found.to_string());
    Error::new(
        ErrorKind::Protocol,
        format!(
            "a record of the lock has format {found}, and this program reads format {FORMAT}: use \
             a version of dlock that reads format {found}; the record stays unchanged"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_format_names_both_formats_and_the_remedy() {
        let error = unknown_format(9);
        assert_eq!(error.kind(), ErrorKind::Protocol);
        let text = error.to_string();
        let reads = "has format 9, and this program reads format 1: use a version";
        assert!(text.contains(reads), "{text}");
        assert!(unknown_format("x".repeat(1000)).to_string().len() < 400);
    }
}
