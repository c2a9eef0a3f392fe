//! tokio's locks: the baseline for everything that happens within a process.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::RwLock;

use crate::{
    Failure,
    subject::{Lock, Subject, Want, Witness},
};

/// Locks by their names, as an application would keep them.
#[derive(Clone, Debug, Default)]
pub(super) struct Tokio {
    mutexes: Arc<Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>>,
    others: Arc<Mutex<HashMap<String, Arc<RwLock<()>>>>>,
}

/// One of these locks.
#[derive(Debug)]
pub(super) enum TokioLock {
    Mutex(Arc<tokio::sync::Mutex<()>>),
    Read(Arc<RwLock<()>>),
    Write(Arc<RwLock<()>>),
    All(Vec<Arc<tokio::sync::Mutex<()>>>),
}

impl Tokio {
    fn mutex(&self, name: &str) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(self.mutexes.lock().entry(name.to_owned()).or_default())
    }

    fn other(&self, name: &str) -> Arc<RwLock<()>> {
        Arc::clone(self.others.lock().entry(name.to_owned()).or_default())
    }
}

impl Subject for Tokio {
    type Lock = TokioLock;

    async fn lock(&self, want: Want<'_>) -> Result<TokioLock, Failure> {
        Ok(match want {
            Want::One(name) | Want::Fair(name) => TokioLock::Mutex(self.mutex(name)),
            Want::Read(name) => TokioLock::Read(self.other(name)),
            Want::Write(name) => TokioLock::Write(self.other(name)),
            Want::All(names) => TokioLock::All(names.iter().map(|name| self.mutex(name)).collect()),
        })
    }
}

impl Lock for TokioLock {
    async fn cycle<W: Witness>(&mut self, witness: &mut W) -> Result<(), Failure> {
        match self {
            Self::Mutex(lock) => {
                let _guard = lock.lock().await;
                witness.held(None).await;
            }
            Self::Read(lock) => {
                let _guard = lock.read().await;
                witness.held(None).await;
            }
            Self::Write(lock) => {
                let _guard = lock.write().await;
                witness.held(None).await;
            }
            Self::All(locks) => {
                let mut guards = Vec::with_capacity(locks.len());
                for lock in locks {
                    guards.push(lock.lock().await);
                }
                witness.held(None).await;
            }
        }
        Ok(())
    }
}
