//! What the facade does on servers, and whether the texts of the repository are true. What of the
//! facade needs no server, `tests/facade` of the package `dlock` has.
//!
//! One binary, since each more is linked with all drivers. Nothing here changes what a whole process
//! shares; a test that has to is one of a binary of its own.

mod costs;
mod cycles;
mod events;
mod guarantees;
mod guide;
mod names;
mod options;
mod over_the_lock;
mod passwords;
mod printed;
mod redis;
mod remedies;
mod servers;
mod targets;
mod words;
