//! The cases, one file for each group. [`ALL`](crate::all::ALL) lists them.

pub(crate) mod cancel;
pub(crate) mod claims;
pub(crate) mod errors;
pub(crate) mod exclusion;
pub(crate) mod fair;
pub(crate) mod fencing;
pub(crate) mod lease;
pub(crate) mod list;
pub(crate) mod loss;
pub(crate) mod model;
pub(crate) mod multi;
pub(crate) mod names;
pub(crate) mod notes;
pub(crate) mod process;
pub(crate) mod raised_tokens;
pub(crate) mod reentrant;
pub(crate) mod resend;
pub(crate) mod rwlock;
pub(crate) mod semaphore;
pub(crate) mod token_offset;
