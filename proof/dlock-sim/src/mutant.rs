//! Broken variants of the store, which the simulation must find.

use std::fmt;

use dlock_core::sim::Rule;

/// A deliberate mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// A release removes the first holder, whichever claim it names.
    ReleaseOfAnother,
    /// The renewal of a claim that has ended renews the first holder.
    RenewalOfAnother,
    /// A client expects its notification only after a poll, and does not poll again.
    LostWakeUp,
    /// No notification is sent, and no client polls again.
    NoNotification,
    /// The cancel of a waiting claim is not sent.
    CancelNotSent,
    /// The lease counts from the answer instead of the request.
    BeliefFromAnswer,
    /// A request without an answer counts as not applied.
    UnknownAsNotApplied,
    /// The server executes late requests.
    LateRequests,
    /// A claim that is not in the store counts as renewed.
    FailedRenewalKept,
    /// A renewal without an answer counts as kept.
    UnansweredRenewalKept,
    /// A repeated acquire adds a second claim.
    RepeatedAcquire,
    /// The server forgets a lock as soon as it is free, with its last token and its bars.
    FreeLockForgotten,
    /// A holder believes in its lease for as long as the store does.
    NoMargin,
    /// A renewed lease counts from the answer instead of the request.
    RenewalFromAnswer,
}

impl Mutant {
    pub(crate) const ALL: [(Self, &'static str); 14] = [
        (Self::ReleaseOfAnother, "release-of-another"),
        (Self::RenewalOfAnother, "renewal-of-another"),
        (Self::LostWakeUp, "lost-wake-up"),
        (Self::NoNotification, "no-notification"),
        (Self::CancelNotSent, "cancel-not-sent"),
        (Self::BeliefFromAnswer, "belief-from-answer"),
        (Self::UnknownAsNotApplied, "unknown-as-not-applied"),
        (Self::LateRequests, "late-requests"),
        (Self::FailedRenewalKept, "failed-renewal-kept"),
        (Self::UnansweredRenewalKept, "unanswered-renewal-kept"),
        (Self::RepeatedAcquire, "repeated-acquire"),
        (Self::FreeLockForgotten, "free-lock-forgotten"),
        (Self::NoMargin, "no-margin"),
        (Self::RenewalFromAnswer, "renewal-from-answer"),
    ];

    /// Returns the rule of the core that it leaves out, if the mistake is there and not in the store.
    pub(crate) const fn rule(self) -> Option<Rule> {
        match self {
            Self::NoMargin => Some(Rule::Margin),
            Self::RenewalFromAnswer => Some(Rule::RenewalFromRequest),
            _ => None,
        }
    }

    /// Returns the mutant with this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, of)| *of == name).map(|(mutant, _)| mutant)
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.into_iter().find(|(mutant, _)| mutant == self);
        f.write_str(name.map_or("", |(_, name)| name))
    }
}
