//! Connecting, and finding out what the server promises.

use dlock_core::{Clock, Error};
use tokio::runtime::Handle;

use super::{
    PostgresConfig,
    conn::PgConn,
    link::{Link, Source},
    listen::PgEars,
    schema::prepare,
};
use crate::engine::{Links, Patience};

/// An open database.
pub(super) struct Opened {
    pub(super) links: Links<PgConn, PgEars>,
    /// Where notes for this engine go; 0 if it has no ears.
    pub(super) home: u32,
    /// Whether what commits outlives a crash of the server.
    pub(super) is_durable: bool,
}

/// Opens the database. Several processes may do so at once, also the first time.
pub(super) async fn open(config: &PostgresConfig, runtime: &Handle) -> Result<Opened, Error> {
    let link = |source: Source| Link::new(source, config.travel(), config.patience);
    let mut first = link(config.shared());
    let until = Clock::Boot.now().saturating_add(config.patience);
    let mut patience = Patience::until(until);
    let is_durable = loop {
        match prepare(&mut first, config.create_schema).await {
            Ok(is_durable) => break is_durable,
            Err(fault) => patience.after(fault).await?,
        }
    };
    let (ears, home) = match ears(config, runtime, &mut first).await {
        Some((ears, home)) => (Some(ears), home),
        None => (None, 0),
    };
    let others = (1..config.connections).map(|_| PgConn(link(config.shared())));
    let links = Links {
        writers: std::iter::once(PgConn(first)).chain(others).collect(),
        keeper: Some(PgConn(link(config.own()))),
        reader: PgConn(link(config.shared())),
        ears,
    };
    Ok(Opened { links, home, is_durable })
}

/// Open ears to which notes get through, and their home.
async fn ears(config: &PostgresConfig, runtime: &Handle, link: &mut Link) -> Option<(PgEars, u32)> {
    if !config.listens() {
        return None;
    }
    let home = rand::random_range(1..=u32::MAX);
    let mut ears = PgEars::new(config.session(), home, config.patience, runtime.clone());
    match ears.probe(link).await {
        Ok(true) => return Some((ears, home)),
        Ok(false) => tracing::warn!(
            "notes do not arrive, as behind a pooler, so waiters look for grants instead: connect \
             to the server itself, or say dlock.listen=false"
        ),
        Err(fault) => tracing::warn!(
            error = %fault.error,
            "no connection could listen, so waiters look for grants instead"
        ),
    }
    None
}
