//! The rules of the protocol, and the purpose of each.

use super::{GONE, ONCE, READABLE, TIMELY};
use crate::check::{EXCLUSION, WAKES};

/// The rules of the protocol. Each can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// A repeated statement carries the same claim.
    SameClaim,
    /// A waiter polls the row.
    Poll,
    /// A fold is applied only if the row still has the base that it was made from.
    FoldByBase,
    /// A hold counts from the sending of the statement, not from its answer.
    SinceSent,
    /// A statement that skips the sync joins the queue and grants nothing to any claim.
    JoinsGrantNothing,
    /// An acquire carries a deadline.
    Deadline,
    /// A deadline uses the lower bound of the database's clock.
    LowerBound,
    /// A release bars a claim that was sent more than once.
    Bar,
    /// The bar outlasts a statement that begins at the deadline.
    BarOutlastsStatements,
}

/// The rules, and the property that is violated without each of them.
pub const RULES: [(Rule, &str); 10] = [
    (Rule::SameClaim, ONCE),
    (Rule::Poll, WAKES),
    (Rule::FoldByBase, READABLE),
    (Rule::SinceSent, EXCLUSION),
    (Rule::JoinsGrantNothing, EXCLUSION),
    (Rule::Deadline, TIMELY),
    (Rule::Deadline, GONE),
    (Rule::LowerBound, TIMELY),
    (Rule::Bar, GONE),
    (Rule::BarOutlastsStatements, GONE),
];
