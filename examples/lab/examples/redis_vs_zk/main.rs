//! The same work on Redis, ZooKeeper, etcd, PostgreSQL and SQLite, side by side. It measures the speed of
//! an uncontended and of a contended lock, and the effect on a held lock when its holder dies, when
//! the server restarts, and when the network is cut. Then it recommends a store, based on the
//! measurements.
//!
//! `cargo run --release -p dlock-examples-lab --example redis_vs_zk`
//!
//! It starts private servers of the stores that are installed. `--quick` measures for a shorter
//! time. `--svg FILE` sets the file for the chart. `--url URL`, repeated, measures existing stores,
//! which are neither restarted nor cut off. The exit status is 1 if a store broke a guarantee. All
//! processes run on one machine: a network would add its latency to each round trip.

mod args;
mod figures;
mod measure;
mod report;
mod store;

use std::process::ExitCode;

use dlock_testlab::Stop;
use futures_util::future::try_join_all;

use crate::{args::Args, figures::Figures, store::Store};

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(broken) if broken.is_empty() => ExitCode::SUCCESS,
        Ok(broken) => {
            broken.iter().for_each(|what| eprintln!("redis_vs_zk: {what}"));
            ExitCode::FAILURE
        }
        Err(stop) => {
            eprintln!("redis_vs_zk: {}", stop.into_text());
            ExitCode::FAILURE
        }
    }
}

/// Measures, prints, and returns the guarantees that were broken.
async fn run() -> Result<Vec<String>, Stop> {
    if measure::serve_as_holder().await? {
        return Ok(Vec::new());
    }
    let args = Args::parse()?;
    let stores = if args.urls.is_empty() {
        Store::private().await
    } else {
        args.urls.iter().map(|url| Store::given(url)).collect()
    };
    if stores.is_empty() {
        return Err(Stop::failed("there is no store to measure: give one with --url"));
    }
    // One after another for the speeds. The faults mostly wait for leases to expire, so they run
    // concurrently.
    let mut speeds = Vec::new();
    for store in &stores {
        eprintln!("measuring {}", store.name);
        speeds.push(measure::speed(&store.url(args.lease), &args).await?);
    }
    eprintln!("harming holders, servers and the network");
    let all_faults =
        try_join_all(stores.iter().map(|store| measure::faults(store, args.lease))).await?;
    let all: Vec<Figures> = stores
        .iter()
        .zip(speeds)
        .zip(all_faults)
        .map(|((store, speed), faults)| Figures { name: store.name.clone(), speed, faults })
        .collect();

    print!("{}", report::table(&all));
    println!("\nWhich one, and why");
    for sentence in report::sentences(&all, &args) {
        println!("- {sentence}");
    }
    report::draw(&all, &args.svg)?;
    println!("\nThe picture: {}", args.svg.display());
    Ok(report::broken(&all))
}
