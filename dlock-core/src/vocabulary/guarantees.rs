//! What a store can promise, as data.

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
    /// What mutual exclusion of live leases survives. No lock service keeps it when a holder
    /// works on past its lease: that is what fencing tokens are for.
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
        /// There are no tokens that mean anything.
        None = "none",
        /// They start again when the store's process does.
        Volatile = "while the store's process lives",
        /// `max(last + 1, the store's clock)`: in order across deletion, restart and lost data,
        /// as long as the store's clock does not step back past the last token.
        Clock = "as long as the store's clock does not step back",
        /// In order whatever the clocks do, while the store keeps its data.
        Durable = "always",
    }
}

level! {
    /// When the lock of a dead process becomes free.
    OrphanRelease {
        /// When its lease ends.
        LeaseEnd = "when the lease ends",
        /// When its session ends: the store notices a dead connection by itself.
        SessionEnd = "when the session ends",
    }
}

level! {
    /// In which order waiting claims are granted.
    Fairness {
        /// In no order.
        None = "no order",
        /// In the order in which the claims reached the store, over all processes.
        Fifo = "first come, first served",
    }
}

level! {
    /// How a waiter learns that the lock is its own.
    WakeUp {
        /// By asking again and again.
        Poll = "poll",
        /// By a message from the store, with asking behind it.
        Push = "push",
    }
}

level! {
    /// How far the lock reaches.
    Scope {
        /// Within one process.
        Process = "one process",
        /// Over the processes of one machine.
        Machine = "one machine",
        /// Over machines.
        Network = "many machines",
    }
}

level! {
    /// Whether the store can count permits.
    Permits {
        /// It can't: semaphores are refused.
        Refused = "refused",
        /// It can.
        Counted = "counted",
    }
}

level! {
    /// Whether the store keeps the notes of who holds and who waits.
    Notes {
        /// It has no place for them: they are left out.
        Dropped = "left out",
        /// It does.
        Kept = "kept",
    }
}

/// What the *connected* backend promises: its configuration changes it.
///
/// Each field is ordered from weak to strong. What is required of a backend has the same type:
/// [`Guarantees::WEAKEST`] with the fields that matter made stronger.
///
/// ```
/// use dlock_core::{Fencing, Guarantees, Scope};
/// let needs = Guarantees::WEAKEST.with_fencing(Fencing::Clock).with_scope(Scope::Machine);
/// let error = needs.check_given(&Guarantees::WEAKEST).unwrap_err();
/// assert!(error.to_string().contains("fencing tokens"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Guarantees {
    /// What exclusion survives.
    pub exclusion: Exclusion,
    /// How tokens stay in order.
    pub fencing: Fencing,
    /// When a dead holder's lock becomes free.
    pub orphan_release: OrphanRelease,
    /// The order of grants.
    pub fairness: Fairness,
    /// How waiters learn of their grant.
    pub wake_up: WakeUp,
    /// How far the lock reaches.
    pub scope: Scope,
    /// Whether there are semaphores.
    pub permits: Permits,
    /// Whether a [`Note`](crate::Note) can be seen.
    pub notes: Notes,
}

impl Guarantees {
    /// Nothing at all: where a list of requirements starts.
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

    /// Checks these requirements against what is `given`.
    ///
    /// # Errors
    /// `Config(Guarantee)`, listing every requirement that is not met.
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

    /// Each guarantee as its name, its rank from 0 (weakest), and its text.
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

    /// With this exclusion.
    #[must_use]
    pub const fn with_exclusion(mut self, exclusion: Exclusion) -> Self {
        self.exclusion = exclusion;
        self
    }

    /// With tokens of this strength.
    #[must_use]
    pub const fn with_fencing(mut self, fencing: Fencing) -> Self {
        self.fencing = fencing;
        self
    }

    /// With this release of dead holders' locks.
    #[must_use]
    pub const fn with_orphan_release(mut self, orphan_release: OrphanRelease) -> Self {
        self.orphan_release = orphan_release;
        self
    }

    /// With this order of grants.
    #[must_use]
    pub const fn with_fairness(mut self, fairness: Fairness) -> Self {
        self.fairness = fairness;
        self
    }

    /// With this wake-up.
    #[must_use]
    pub const fn with_wake_up(mut self, wake_up: WakeUp) -> Self {
        self.wake_up = wake_up;
        self
    }

    /// With this reach.
    #[must_use]
    pub const fn with_scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// With or without semaphores.
    #[must_use]
    pub const fn with_permits(mut self, permits: Permits) -> Self {
        self.permits = permits;
        self
    }

    /// With or without a place for notes.
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
