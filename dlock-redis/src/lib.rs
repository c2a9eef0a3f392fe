//! Redis and Valkey backends.

mod backend;
mod config;
mod durable;
mod error;
mod factory;
mod inbox;
mod keys;
mod link;
mod minder;
mod plain;
mod poll;
mod quiet;
mod quorum;
mod reply;
mod scripts;
mod session;
mod store;

pub use self::{
    backend::Redis,
    config::{Durability, RedisConfig},
    factory::REDIS,
};
