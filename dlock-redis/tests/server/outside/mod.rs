//! What servers, settings and other programs did to locks elsewhere: each was found from outside.

mod crowd;
mod guard;
mod messages;
mod places;
mod promise;
mod quorum;
mod records;
mod rights;
