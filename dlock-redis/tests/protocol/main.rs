//! A lock survives a lost answer, a delayed duplicate, a dead waiter, a slow or full server, and a key of
//! another program. Each test covers one of them against real servers.

#![cfg(unix)]

mod replay;
mod support;

mod cleanup;
mod data_loss;
mod duplicates;
mod durable;
mod foreign;
mod late;
mod out_of_memory;
mod queue_position;
mod raise_tokens;
mod random_walk;
mod readers;
mod refused_commands;
mod restart_guard;
mod silent_master;
mod slow;
mod token_limit;
mod tokens;
mod unreachable_waiter;
