//! What a single lost answer, a delayed duplicate, a dead waiter, a slow or full server or a key of
//! another program must not do to a lock: one test for each, against real servers.

#![cfg(unix)]

mod support;
mod tape;

mod deaf;
mod duplicates;
mod durable;
mod floor;
mod foreign;
mod full;
mod guard;
mod left;
mod outside;
mod places;
mod readers;
mod refused;
mod reset;
mod silent;
mod slow;
mod tokens;
mod walk;
