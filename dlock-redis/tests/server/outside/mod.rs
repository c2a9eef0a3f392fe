//! What servers, settings and other programs did to locks elsewhere: each was found from outside.

mod messages;
mod rights;
