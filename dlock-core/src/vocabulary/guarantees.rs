//! The promises of a store, as data.

use std::fmt;

use crate::{ConfigIssue, Error};

macro_rules! level {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum $name { $($(#[$vmeta])* $variant),+ }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant => $text),+ })
            }
        }
    };
}

level! {
    /// The events that mutual exclusion of live leases survives. No lock service excludes a holder
    /// that works on after its lease has expired: fencing tokens exist for that case.
    Exclusion {
        /// Lost when the store restarts.
        Nothing = "until the store restarts",
        /// Kept when the store restarts with its data.
        Restart = "survives a restart of the store",
        /// Kept when another node takes over.
        Failover = "survives failover to another node",
    }
}

level! {
    /// How fencing tokens stay in order.
    Fencing {
        /// The store has no meaningful tokens.
        None = "none",
        /// The tokens start again when the store's process restarts.
        Volatile = "while the store's process lives",
        /// `max(last + 1, the store's clock)`: in order across deletion, restart and lost data, if
        /// the store's clock does not step back past the last token.
        Clock = "as long as the store's clock does not step back",
        /// In order regardless of clocks, if the store keeps its data.
        Durable = "always",
    }
}

level! {
    /// When the lock of a dead process becomes free.
    OrphanRelease {
        /// When its lease expires.
        LeaseEnd = "when the lease ends",
        /// When its session ends: the store detects a dead connection.
        SessionEnd = "when the session ends",
    }
}

level! {
    /// The order in which waiting claims are granted.
    Fairness {
        /// In no order.
        None = "no order",
        /// In the order in which the claims reached the store, over all processes.
        Fifo = "first come, first served",
    }
}

level! {
    /// How a waiter is informed of its grant.
    WakeUp {
        /// The waiter polls the store.
        Poll = "poll",
        /// The store sends a notification; the waiter also polls rarely, in case one is lost.
        Push = "push",
    }
}

level! {
    /// The range of processes that can share the lock.
    Scope {
        /// One process.
        Process = "one process",
        /// The processes of one machine.
        Machine = "one machine",
        /// Several machines.
        Network = "many machines",
    }
}

level! {
    /// Whether the store can count permits.
    Permits {
        /// The store can't count permits: semaphores are refused.
        Refused = "refused",
        /// The store counts permits.
        Counted = "counted",
    }
}

level! {
    /// Whether the store keeps the notes of holders and waiters.
    Notes {
        /// The store discards notes.
        Dropped = "left out",
        /// The store keeps them.
        Kept = "kept",
    }
}

/// The promises of the *connected* backend, which depend on its configuration.
///
/// The values of each field are ordered from weak to strong. Requirements have the same type: start
/// with [`Guarantees::WEAKEST`] and strengthen the fields that matter.
///
/// ```
/// # mod dlock { pub use dlock_core::*; pub mod guarantees { pub use dlock_core::*; } }
/// use dlock::guarantees::{Fencing, Guarantees, Scope};
/// let needs = Guarantees::WEAKEST.with_fencing(Fencing::Clock).with_scope(Scope::Machine);
/// let error = needs.check_given(&Guarantees::WEAKEST).unwrap_err();
/// assert!(error.to_string().contains("fencing tokens"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Guarantees {
    /// The events that exclusion survives.
    pub exclusion: Exclusion,
    /// The order of fencing tokens.
    pub fencing: Fencing,
    /// The time at which a dead holder's lock becomes free.
    pub orphan_release: OrphanRelease,
    /// The order of grants.
    pub fairness: Fairness,
    /// How waiters are informed of their grant.
    pub wake_up: WakeUp,
    /// The range of processes that can share a lock.
    pub scope: Scope,
    /// Whether the store supports semaphores.
    pub permits: Permits,
    /// Whether a [`Note`](crate::Note) can be seen.
    pub notes: Notes,
}

impl Guarantees {
    /// No promises: the start of a list of requirements.
    pub const WEAKEST: Self = Self {
        exclusion: Exclusion::Nothing,
        fencing: Fencing::None,
        orphan_release: OrphanRelease::LeaseEnd,
        fairness: Fairness::None,
        wake_up: WakeUp::Poll,
        scope: Scope::Process,
        permits: Permits::Refused,
        notes: Notes::Dropped,
    };

    /// Checks these requirements against the promises in `given`.
    ///
    /// # Errors
    /// `Config(Guarantee)`, which lists every requirement that is not met.
    pub fn check_given(&self, given: &Self) -> Result<(), Error> {
        let missing: Vec<String> = self
            .rows()
            .into_iter()
            .zip(given.rows())
            .filter(|((_, needed, _), (_, got, _))| needed > got)
            .map(|((what, _, needed), (_, _, got))| {
                format!("{what}: needed \"{needed}\", given \"{got}\"")
            })
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(Error::config(
            ConfigIssue::Guarantee,
            format!(
                "the backend does not give the required guarantees ({}): choose another backend or \
                 configuration, or require less",
                missing.join("; ")
            ),
        ))
    }

    /// Returns the name, the rank from 0 (weakest), and the text of each guarantee.
    pub fn rows(&self) -> [(&'static str, u8, String); 8] {
        let Self { exclusion, fencing, orphan_release, fairness, wake_up, scope, permits, notes } =
            *self;
        [
            ("mutual exclusion", exclusion as u8, exclusion.to_string()),
            ("fencing tokens in order", fencing as u8, fencing.to_string()),
            ("a dead holder's lock is free", orphan_release as u8, orphan_release.to_string()),
            ("order of grants", fairness as u8, fairness.to_string()),
            ("wake-up", wake_up as u8, wake_up.to_string()),
            ("reach", scope as u8, scope.to_string()),
            ("semaphores", permits as u8, permits.to_string()),
            ("notes of who holds it", notes as u8, notes.to_string()),
        ]
    }

    /// Returns the value with this exclusion.
    #[must_use]
    pub const fn with_exclusion(mut self, exclusion: Exclusion) -> Self {
        self.exclusion = exclusion;
        self
    }

    /// Returns the value with this order of tokens.
    #[must_use]
    pub const fn with_fencing(mut self, fencing: Fencing) -> Self {
        self.fencing = fencing;
        self
    }

    /// Returns the value with this release of dead holders' locks.
    #[must_use]
    pub const fn with_orphan_release(mut self, orphan_release: OrphanRelease) -> Self {
        self.orphan_release = orphan_release;
        self
    }

    /// Returns the value with this order of grants.
    #[must_use]
    pub const fn with_fairness(mut self, fairness: Fairness) -> Self {
        self.fairness = fairness;
        self
    }

    /// Returns the value with this wake-up.
    #[must_use]
    pub const fn with_wake_up(mut self, wake_up: WakeUp) -> Self {
        self.wake_up = wake_up;
        self
    }

    /// Returns the value with this scope.
    #[must_use]
    pub const fn with_scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// Returns the value with or without semaphores.
    #[must_use]
    pub const fn with_permits(mut self, permits: Permits) -> Self {
        self.permits = permits;
        self
    }

    /// Returns the value with or without notes.
    #[must_use]
    pub const fn with_notes(mut self, notes: Notes) -> Self {
        self.notes = notes;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn every_missing_guarantee_is_listed() {
        let needs = Guarantees::WEAKEST
            .with_exclusion(Exclusion::Failover)
            .with_fencing(Fencing::Durable)
            .with_scope(Scope::Network);
        let given = Guarantees::WEAKEST.with_fencing(Fencing::Durable);
        let error = needs.check_given(&given).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Guarantee));
        let text = error.to_string();
        assert!(text.contains("mutual exclusion") && text.contains("reach"), "{text}");
        assert!(!text.contains("fencing"), "{text}");
    }
}
