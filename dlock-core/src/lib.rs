//! Traits, guards, fencing tokens and the backend contract of dlock.

mod answer;
mod backend;
mod claim;
mod clock;
mod error;
mod fence;
mod guarantees;
pub mod machine;
mod mode;
mod name;
mod options;
mod owner;
mod registry;
mod token;
mod url;

pub use answer::Answer;
pub use backend::{
    AcquireRequest, Acquired, Backend, ClaimState, DynBackend, Grant, LockState, Queue, Released,
    Renewal, Renewed,
};
pub use claim::{Claim, ClaimId};
pub use clock::{Clock, Instant};
pub use error::{Certainty, ConfigIssue, Error, ErrorKind};
pub use fence::{Fence, StaleToken};
pub use guarantees::{
    Exclusion, Fairness, Fencing, Guarantees, OrphanRelease, Permits, Scope, WakeUp,
};
pub use mode::Mode;
pub use name::LockName;
pub use options::{LockOptions, Renew};
pub use owner::Owner;
pub use registry::{Connecting, Factory, Registry};
pub use token::FencingToken;
pub use url::BackendUrl;
