//! The types that the contract and applications share. They do not depend on stores, tasks or
//! handles.

pub(crate) mod answer;
pub(crate) mod claim;
pub(crate) mod clock;
pub(crate) mod error;
pub(crate) mod fence;
pub(crate) mod finding;
pub(crate) mod format;
pub(crate) mod guarantees;
pub(crate) mod mode;
pub(crate) mod name;
pub(crate) mod note;
pub(crate) mod options;
pub(crate) mod outcome;
pub(crate) mod owner;
pub(crate) mod token;
