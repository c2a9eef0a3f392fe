//! dlock itself.

use std::{sync::Arc, time::Duration};

use dlock::{
    ErrorKind, FairMutex, Guard, LockOptions, Locks, MultiMutex, Mutex, RwLock,
    sqlite::{Sqlite, SqliteConfig},
};
use futures_util::future::try_join_all;
use tokio::task::JoinSet;

use super::once::{self, Once};
use crate::{
    Failure, clock,
    subject::{Lock, Subject, Want, Witness},
};

/// The number of tasks that acquire the held locks.
const TASKS: usize = 512;
/// The text before the retention in a URL.
const RETENTION: &str = "&dlock.retention=";
/// The limit for the end of a holder's lease, far above the longest lease.
const NEXT_LIMIT: Duration = Duration::from_secs(150);
/// The pause between two checks for late renewals.
const LOOK: Duration = Duration::from_millis(500);

/// A connection to a store, with the locks that it holds.
#[derive(Clone, Debug)]
pub(super) struct Dlock {
    locks: Locks,
    kept: Arc<tokio::sync::Mutex<Vec<Guard>>>,
}

impl Dlock {
    pub(super) async fn connect(url: &str) -> Result<Self, Failure> {
        // SQLite has no option for the retention in its URL.
        let file = url.strip_prefix("sqlite:").and_then(|rest| rest.split_once(RETENTION));
        let locks = match file {
            None => dlock::connect(url).await?,
            Some((file, seconds)) => {
                let path = file.split('?').next().unwrap_or_default();
                let retention = Duration::from_secs(seconds.trim_end_matches('s').parse()?);
                let config = SqliteConfig::new(path).with_retention(retention);
                Locks::new(Sqlite::open(config).await?)?
            }
        };
        Ok(Self { locks, kept: Arc::default() })
    }

    /// Acquires `count` names, and holds them.
    async fn keep(&self, name: &str, count: usize, lease: Duration) -> Result<String, Failure> {
        let locks = self.locks.with_options(LockOptions::new().with_lease(lease))?;
        // Reserved in advance, so that the growth of the list does not count as memory of the
        // locks.
        self.kept.lock().await.reserve_exact(count);
        let mut tasks: JoinSet<Result<(), Failure>> = JoinSet::new();
        for task in 0..TASKS.min(count) {
            let (locks, kept, name) = (locks.clone(), Arc::clone(&self.kept), name.to_owned());
            tasks.spawn(async move {
                for i in (task..count).step_by(TASKS) {
                    let guard = locks.mutex(format!("{name}/{i}"))?.lock().await?;
                    kept.lock().await.push(guard);
                }
                Ok(())
            });
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        Ok(self.kept.lock().await.len().to_string())
    }

    /// Waits for all of these names, which others hold. Returns the time when each was acquired.
    async fn next(&self, lease: Duration, names: &[&str]) -> Result<String, Failure> {
        let locks = self.locks.with_options(LockOptions::new().with_lease(lease))?;
        let waits = names.iter().map(async |name| {
            let guard = locks.mutex(*name)?.lock_timeout(NEXT_LIMIT).await?;
            let got = clock::now();
            guard.release().await?;
            Ok::<_, Failure>(format!("{got} "))
        });
        Ok(try_join_all(waits).await?.concat())
    }

    /// Acquires a name and `count` names below it one after the other, and returns their tokens.
    async fn tokens(&self, name: &str, count: usize) -> Result<String, Failure> {
        let mut tokens = String::new();
        let below = (0..count).map(|i| format!("{name}/{i}"));
        for name in std::iter::once(name.to_owned()).chain(below) {
            let guard = self.locks.mutex(name)?.lock().await?;
            tokens += &format!("{} ", guard.token().get());
            guard.release().await?;
        }
        Ok(tokens)
    }

    /// Returns the number of held locks that were seen with less than half of their lease left,
    /// although a renewal is due after a third of it; the number of lost locks; and the processor
    /// seconds that these checks took.
    async fn watch(&self, lasts: Duration) -> Result<String, Failure> {
        let kept = self.kept.lock().await;
        let mut late = vec![false; kept.len()];
        let (start, mut looking, mut whole) = (clock::now(), Duration::ZERO, Duration::ZERO);
        while clock::since(start) < lasts {
            tokio::time::sleep(LOOK.min(lasts)).await;
            let before = clock::thread_time()?;
            // A store may grant a shorter lease than requested.
            whole = kept.iter().map(Guard::remaining).fold(whole, Duration::max);
            for (late, guard) in late.iter_mut().zip(kept.iter()) {
                *late |= guard.remaining() < whole / 2;
            }
            looking += clock::thread_time()? - before;
        }
        let late = late.iter().filter(|late| **late).count();
        let lost = kept.iter().filter(|guard| guard.check().is_err()).count();
        Ok(format!("{late} {lost} {}", looking.as_secs_f64()))
    }
}

/// A lock of any kind.
#[derive(Debug)]
pub(super) enum DlockLock {
    Mutex(Mutex),
    Fair(FairMutex),
    Read(RwLock),
    Write(RwLock),
    Multi(MultiMutex),
}

impl Subject for Dlock {
    type Lock = DlockLock;

    async fn lock(&self, want: Want<'_>) -> Result<DlockLock, Failure> {
        Ok(match want {
            Want::One(name) => DlockLock::Mutex(self.locks.mutex(name)?),
            Want::Fair(name) => match self.locks.fair(name) {
                Ok(lock) => DlockLock::Fair(lock),
                // Session locks have the database's own order if local hand-off is disabled.
                Err(error) if error.kind() == ErrorKind::Unsupported => {
                    DlockLock::Mutex(self.locks.without_handoff().mutex(name)?)
                }
                Err(error) => return Err(error.into()),
            },
            Want::Read(name) => DlockLock::Read(self.locks.rw(name)?),
            Want::Write(name) => DlockLock::Write(self.locks.rw(name)?),
            Want::All(names) => {
                DlockLock::Multi(self.locks.multi(names.iter().map(String::as_str))?)
            }
        })
    }

    async fn more(&self, words: &[&str]) -> Result<String, Failure> {
        match *words {
            ["keep", name, count, lease] => {
                self.keep(name, count.parse()?, Duration::from_millis(lease.parse()?)).await
            }
            ["next", lease, ref names @ ..] => {
                self.next(Duration::from_millis(lease.parse()?), names).await
            }
            ["watch", lasts] => self.watch(Duration::from_millis(lasts.parse()?)).await,
            ["use", name, count, tasks] => {
                once::all(self, name, count.parse()?, tasks.parse()?).await?;
                Ok(String::new())
            }
            ["tokens", name, count] => self.tokens(name, count.parse()?).await,
            _ => once::more(self, words).await,
        }
    }
}

impl Once for Dlock {
    async fn once(&self, name: &str) -> Result<(), Failure> {
        self.locks.mutex(name)?.lock().await?.release().await?;
        Ok(())
    }
}

impl Lock for DlockLock {
    async fn cycle<W: Witness>(&mut self, witness: &mut W) -> Result<(), Failure> {
        let guard = match self {
            Self::Mutex(lock) => lock.lock().await?,
            Self::Fair(lock) => lock.lock().await?,
            Self::Read(lock) => lock.read().lock().await?,
            Self::Write(lock) => lock.write().lock().await?,
            Self::Multi(lock) => lock.lock().await?,
        };
        witness.held(Some(guard.token().get())).await;
        guard.release().await?;
        Ok(())
    }
}
