//! What a claim's node holds: `lease=30000ms`, and maybe a mark behind it.
//!
//! The lease is for people and for [`inspect`](dlock_core::Backend::inspect). A mark changes what
//! the node stands for without a new node, so that its place in the queue stays: `shared` for a
//! writer that has become a reader, `granted` for permits that were waited for. Whoever watches
//! the node learns of it.

use std::time::Duration;

/// What a claim's node holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Data {
    pub(crate) lease: Duration,
    pub(crate) mark: Option<Mark>,
}

/// What has happened to the claim since it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// It is a reader now.
    Shared,
    /// It has its permits.
    Granted,
}

impl Data {
    pub(crate) const fn of(lease: Duration) -> Self {
        Self { lease, mark: None }
    }

    pub(crate) const fn marked(lease: Duration, mark: Mark) -> Self {
        Self { lease, mark: Some(mark) }
    }

    pub(crate) fn text(self) -> String {
        let mark = match self.mark {
            None => "",
            Some(Mark::Shared) => " shared",
            Some(Mark::Granted) => " granted",
        };
        format!("lease={}ms{mark}", self.lease.as_millis())
    }

    /// Reads a node's data; `None` for what another program wrote.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let (lease, mark) = match text.split_once(' ') {
            None => (text, None),
            Some((lease, "shared")) => (lease, Some(Mark::Shared)),
            Some((lease, "granted")) => (lease, Some(Mark::Granted)),
            Some(_) => return None,
        };
        let lease = lease.strip_prefix("lease=")?.strip_suffix("ms")?.parse().ok()?;
        Some(Self { lease: Duration::from_millis(lease), mark })
    }

    /// Whether these bytes have this mark.
    pub(crate) fn has(bytes: &[u8], mark: Mark) -> bool {
        Self::parse(bytes).is_some_and(|data| data.mark == Some(mark))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_round_trips() {
        let lease = Duration::from_secs(30);
        for data in
            [Data::of(lease), Data::marked(lease, Mark::Shared), Data::marked(lease, Mark::Granted)]
        {
            assert_eq!(Data::parse(data.text().as_bytes()), Some(data));
        }
        assert_eq!(Data::of(lease).text(), "lease=30000ms");
    }

    #[test]
    fn what_others_wrote_is_nothing() {
        for bytes in [&b""[..], b"10.0.0.1", b"lease=ms", b"lease=1ms?", b"lease=1ms x", b"\xff"] {
            assert_eq!(Data::parse(bytes), None);
        }
    }
}
