//! The Redis backend against real servers that refuse, that are not as they should be, and that
//! other programs use, too.

#![cfg(unix)]

mod support;

mod foreign;
mod memory;
mod names;
mod scratch;
