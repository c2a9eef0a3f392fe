//! The options of the private servers.

/// The options of all servers of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) disk: Disk,
    pub(crate) members: Members,
}

/// Whether a server that writes waits for its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disk {
    Waited,
    NotWaited,
}

/// The number of members of an etcd cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Members {
    One,
    Three,
}

impl Disk {
    /// Returns the text for the report.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Waited => "each commit waits for the disk",
            Self::NotWaited => "no commit waits for the disk",
        }
    }
}
