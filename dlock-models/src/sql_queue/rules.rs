//! The rules of the protocol, and what each of them is for.

use super::{GONE, ONCE, READABLE, TIMELY};
use crate::check::{EXCLUSION, WAKES};

/// The rules of the protocol, each of which can be taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// What is sent again carries the same claim.
    SameClaim,
    /// Who waits looks at the row now and then.
    Poll,
    /// A fold is taken only while the row has the base that it was made from.
    FoldByBase,
    /// A hold is relied on from the sending of the statement, not from its answer.
    SinceSent,
    /// What is written in a hurry joins the queue and lets nobody in.
    JoinsLetNobodyIn,
    /// An acquire carries a deadline.
    Deadline,
    /// A deadline is reckoned from the least that the database's clock can show.
    LowerBound,
    /// A release bars the claim that was sent more than once.
    Bar,
    /// The bar outlasts a statement that begins at the deadline.
    BarOutlastsStatements,
}

/// The rules, and what is violated without them.
pub const RULES: [(Rule, &str); 10] = [
    (Rule::SameClaim, ONCE),
    (Rule::Poll, WAKES),
    (Rule::FoldByBase, READABLE),
    (Rule::SinceSent, EXCLUSION),
    (Rule::JoinsLetNobodyIn, EXCLUSION),
    (Rule::Deadline, TIMELY),
    (Rule::Deadline, GONE),
    (Rule::LowerBound, TIMELY),
    (Rule::Bar, GONE),
    (Rule::BarOutlastsStatements, GONE),
];
