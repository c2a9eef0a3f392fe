//! The client code of dlock in a world from a seed. See `docs/contributing/simulation.md`.

#[cfg(dlock_sim)]
mod command;
#[cfg(any(dlock_sim, test))]
mod etcd;
#[cfg(dlock_sim)]
mod faults;
#[cfg(dlock_sim)]
mod machine;
#[cfg(dlock_sim)]
mod mutant;
#[cfg(dlock_sim)]
mod network;
#[cfg(dlock_sim)]
mod plan;
#[cfg(dlock_sim)]
mod process;
#[cfg(dlock_sim)]
mod random;
#[cfg(any(dlock_sim, test))]
mod redis;
#[cfg(dlock_sim)]
mod run;
#[cfg(any(dlock_sim, test))]
mod sql;
#[cfg(dlock_sim)]
mod stores;
#[cfg(dlock_sim)]
mod world;

/// Adds bytes to a hash: 64-bit FNV-1a.
#[cfg(dlock_sim)]
fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3))
}

#[cfg(dlock_sim)]
fn main() -> std::process::ExitCode {
    command::main()
}

#[cfg(not(dlock_sim))]
fn main() -> std::process::ExitCode {
    eprintln!("this build has no simulation: use scripts/simulate");
    std::process::ExitCode::from(2)
}
