//! A lock survives a lost answer, a delayed duplicate, a dead waiter, a slow or full server, and a key of
//! another program. Each test covers one of them against real servers.

#![cfg(unix)]

mod replay;
mod support;

mod data_loss;
mod duplicates;
mod foreign;
mod late;
mod out_of_memory;
mod queue_position;
mod random_walk;
mod refused_commands;
mod release;
mod restart_guard;
mod slow;
mod take;
mod tokens;
mod unreachable_waiter;
