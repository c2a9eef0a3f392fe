//! The client code of dlock in a world from a seed. See `docs/contributing/simulation.md`.

#[cfg(dlock_sim)]
mod command;
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
#[cfg(dlock_sim)]
mod world;

#[cfg(dlock_sim)]
fn main() -> std::process::ExitCode {
    command::main()
}

#[cfg(not(dlock_sim))]
fn main() -> std::process::ExitCode {
    eprintln!("this build has no simulation: use scripts/simulate");
    std::process::ExitCode::from(2)
}
