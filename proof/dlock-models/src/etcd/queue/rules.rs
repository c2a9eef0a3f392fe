//! The rules, and the setups in which they are checked.
//!
//! One model with all faults at a time would have too many states. Each setup has the faults that
//! can work together.

use super::{CLIENTS, Faults, NOBODYS};
use crate::check::{EXCLUSION, WAKES};

/// The rules of the protocol. Each can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// A creation compares the epoch, which is raised after an unknown outcome.
    Epoch,
    /// If the server is out of space, the client raises the epoch by deleting the marker.
    RaiseWhenFull,
    /// The client creates no key while its marker is deleted.
    MarkerFirst,
    /// A cancelled claim with an unknown outcome is searched in a new epoch, and deleted.
    SeeThrough,
    /// After a deletion without an answer the slot is not used again.
    FreshSlot,
    /// The slot of a claim contains the lease of its session.
    OwnLease,
    /// A read after an event, or when a watch is set, shows at least its revision.
    EventBound,
    /// A waiter is granted the lock only if its own key exists.
    OwnKey,
    /// The end of the watched key is the grant only if no other key is ahead.
    OnlyOne,
    /// And only if the own key was not deleted before, as its watch reports.
    OwnFirst,
    /// At another member, the client reads its place again when the watch is set.
    ReadAgain,
    /// An event counts only if it is later than the creation of the claim.
    LaterEvents,
    /// There it also watches again: the other member may report nothing any more.
    NewWatch,
    /// There the first read shows at least the revision that the client has seen.
    SeenBound,
    /// A claim for permits that becomes the first waiter reads the queue.
    FirstReads,
    /// A waiter that is granted permits puts its key again.
    Mark,
    /// So does a claim that a search finds granted after an unknown outcome.
    MarkFound,
}

/// The rules, and the property that is violated without each of them.
pub const RULES: [(Rule, &str); 18] = [
    (Rule::Epoch, NOBODYS),
    (Rule::Epoch, WAKES),
    (Rule::RaiseWhenFull, NOBODYS),
    (Rule::MarkerFirst, NOBODYS),
    (Rule::SeeThrough, NOBODYS),
    (Rule::FreshSlot, EXCLUSION),
    (Rule::OwnLease, EXCLUSION),
    (Rule::EventBound, WAKES),
    (Rule::OwnKey, EXCLUSION),
    (Rule::OnlyOne, EXCLUSION),
    (Rule::OwnFirst, EXCLUSION),
    (Rule::ReadAgain, WAKES),
    (Rule::LaterEvents, EXCLUSION),
    (Rule::NewWatch, WAKES),
    (Rule::SeenBound, NOBODYS),
    (Rule::FirstReads, WAKES),
    (Rule::Mark, WAKES),
    (Rule::MarkFound, WAKES),
];

/// The clients and faults of a model.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) permits: bool,
    /// The number of permits that each client wants.
    pub(super) needs: [u8; CLIENTS],
    /// The number of times that each client wants the lock.
    pub(super) wants: [u8; CLIENTS],
    /// The sessions of the clients.
    pub(super) sessions: [usize; CLIENTS],
    pub(super) faults: Faults,
}

const NONE: Faults = Faults { late: 0, broken: 0, failovers: 0, ends: 0, full: 0 };

/// Requests that take effect late, on a server that runs out of space.
pub(super) static LATE: Setup = Setup {
    permits: false,
    needs: [2; CLIENTS],
    wants: [2, 2, 0],
    sessions: [0, 1, 2],
    faults: Faults { late: 2, full: 1, ..NONE },
};

/// Members that lag behind, and keys that are deleted by hand.
pub(super) static VIEWS: Setup = Setup {
    permits: false,
    needs: [2; CLIENTS],
    wants: [1, 1, 1],
    sessions: [0, 1, 1],
    faults: Faults { broken: 1, failovers: 1, ..NONE },
};

/// A client whose second key has the name of the first one, and a waiter whose next member is behind.
pub(super) static REUSE: Setup = Setup {
    permits: false,
    needs: [2; CLIENTS],
    wants: [2, 1, 0],
    sessions: [0, 1, 2],
    faults: Faults { failovers: 1, ..NONE },
};

/// A session of two clients that ends.
pub(super) static ENDS: Setup = Setup {
    permits: false,
    needs: [2; CLIENTS],
    wants: [1, 1, 1],
    sessions: [0, 1, 1],
    faults: Faults { ends: 1, ..NONE },
};

/// A session that ends before a late request of it takes effect.
pub(super) static RETURNS: Setup = Setup {
    permits: false,
    needs: [2; CLIENTS],
    wants: [2, 1, 0],
    sessions: [0, 1, 2],
    faults: Faults { late: 1, ends: 1, ..NONE },
};

/// A semaphore whose members lag behind, and whose keys are deleted by hand.
pub(super) static PERMITS: Setup = Setup {
    permits: true,
    needs: [2, 1, 1],
    wants: [1, 1, 1],
    sessions: [0, 1, 2],
    faults: Faults { broken: 1, failovers: 1, ..NONE },
};

/// A semaphore with requests that take effect late.
pub(super) static LATE_PERMITS: Setup = Setup { faults: Faults { late: 1, ..NONE }, ..PERMITS };

impl Rule {
    /// Returns the setup that shows the violation.
    pub(super) fn setup(self) -> &'static Setup {
        match self {
            Self::EventBound | Self::OwnKey => &VIEWS,
            Self::OnlyOne | Self::OwnFirst => &VIEWS,
            Self::ReadAgain | Self::NewWatch | Self::SeenBound => &VIEWS,
            Self::LaterEvents => &REUSE,
            Self::OwnLease => &RETURNS,
            Self::FirstReads | Self::Mark => &PERMITS,
            Self::MarkFound => &LATE_PERMITS,
            _ => &LATE,
        }
    }
}
