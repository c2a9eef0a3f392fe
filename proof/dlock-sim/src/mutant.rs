//! Deliberate mistakes in the stores and in the client code, which the simulation must find.

/// The names of the mistakes, each with a store that shows it. The code that makes a mistake asks for
/// its name: that of a client with `dlock_core::sim::has_mistake`.
pub(crate) const MUTANTS: [(&str, &str); 28] = [
    // A release removes the first holder, whichever claim it names.
    ("release-of-another", "machine"),
    // The renewal of a claim that has ended renews the first holder.
    ("renewal-of-another", "machine"),
    // A client expects its notification only after a poll, and does not poll again.
    ("lost-wake-up", "machine"),
    // No notification is sent, and no client polls again.
    ("no-notification", "machine"),
    // The cancel of a waiting claim is not sent.
    ("cancel-not-sent", "machine"),
    // The lease counts from the answer instead of the request.
    ("lease-from-answer", "machine"),
    // A request without an answer counts as not applied.
    ("unknown-as-not-applied", "machine"),
    // The server executes late requests.
    ("late-requests", "machine"),
    // A claim that is not in the store counts as renewed.
    ("failed-renewal-kept", "machine"),
    // A renewal without an answer counts as kept.
    ("unanswered-renewal-kept", "machine"),
    // A repeated acquire adds a second claim.
    ("repeated-acquire", "machine"),
    // The server forgets a lock as soon as it is free, with its last token and its bars.
    ("free-lock-forgotten", "machine"),
    // The lease of a holder ends no earlier than in the store.
    ("no-margin", "machine"),
    // A renewed lease counts from the answer instead of the request.
    ("renewal-from-answer", "machine"),
    // Work under a lock goes on until a timer ends it, although its lease is over.
    ("work-until-timer", "redis"),
    // Every second process takes the names of a multi-lock one by one.
    (NAMES_ONE_BY_ONE, "machine"),
    // A late renewal cuts the last one, which sets the minimum time of a job.
    ("late-renewal-cuts", "redis"),
    // Releases and renewals grant locks within the restart guard.
    ("grants-within-guard", "redis"),
    // The server answers before a commit is safe from a crash.
    ("commit-not-awaited", "sql"),
    // A statement changes the row as it was before it waited for it.
    ("lost-update", "sql"),
    // The server takes a fold that contains operations that it has lost.
    ("unchecked-fold", "sql"),
    // A statement without an answer counts as refused.
    ("no-answer-is-refusal", "sql"),
    // A session ends when a member says that it was stopped.
    ("unknown-ends-session", "etcd"),
    // A release that the members refuse is not repeated.
    ("refused-release-forgotten", "etcd"),
    // A session keeps its lease after an election.
    ("lease-of-old-term", "etcd"),
    // A lease counts although too few replicas have it.
    ("few-replicas", "sentinel"),
    // A quorum is one vote less.
    ("one-vote-less", "quorum"),
    // A quorum has no restart guard, although its masters lose their data.
    ("no-guard", "quorum"),
];

const NAMES_ONE_BY_ONE: &str = "names-one-by-one";

/// Returns the mutant with this name, and its store.
pub(crate) fn named(name: &str) -> Option<(&'static str, &'static str)> {
    MUTANTS.into_iter().find(|(of, _)| *of == name)
}

/// Returns the mistake in the code of a process.
pub(crate) fn of_process(mutant: Option<&'static str>, process: usize) -> Option<&'static str> {
    mutant.filter(|name| *name != NAMES_ONE_BY_ONE || process % 2 == 1)
}
