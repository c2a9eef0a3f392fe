//! A complete custom backend: it keeps the locks of one machine in a file that is replaced at each
//! change. As a program it runs the conformance kit on itself.
//!
//! `cargo run -p dlock-examples-lab --example custom_backend`; a few cases with `-- fencing`
//!
//! Three things make it correct. `visit` changes the table in one step, under a file lock that ends
//! with its process. The rules (queue, leases, tokens, idempotence by claim) are those of
//! [`dlock_core::machine`], by the machine's clock, which all processes share. `forget_free` deletes
//! the record of each free name, and keeps the largest token of all of them. It syncs nothing to
//! the disk, so it guarantees nothing across a restart of the machine.

use std::{
    collections::BTreeMap,
    env,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::{Arc, LazyLock},
    time::Duration,
};

use async_trait::async_trait;
use dlock_core::{
    AcquireRequest, Acquired, Admin, Answer, Backend, Certainty, Claim, Clock, DynBackend, Error,
    ErrorKind, Fairness, Fencing, FencingToken, Grant, Guarantees, Instant, LockName, LockState,
    Mode, Notes, OrphanRelease, Permits, Released, Renewal, Renewed, Scope, WakeUp,
    machine::{Granted, Machine, Micros, Op, Outcome, conflict, spent, text},
};
use dlock_testkit::{Bounds, Opened, Store};
use dlock_testlab::Stop;
use tempfile::TempDir;
use tokio::{sync::Mutex, task::spawn_blocking, time::sleep};

/// The pause between two polls of a waiter.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A fair queue for the file lock within this process. A file lock has no order: among hundreds of
/// concurrent calls, a renewal could wait for it longer than its lease.
static TURN: LazyLock<Arc<Mutex<()>>> = LazyLock::new(Arc::default);

/// The backend: a directory with the table `locks`, and `gate`, the file lock that protects it.
#[derive(Clone, Debug)]
struct Files {
    store: String,
    dir: PathBuf,
}

/// All locks that are held or waited for. The first line of the file is `now floor`. Each other
/// line is a name and its lock machine, separated by a tab; no name contains a control character.
#[derive(Default)]
struct Table {
    locks: BTreeMap<String, Machine>,
    /// No fencing token of a free lock is larger than this.
    floor: u64,
}

impl Table {
    /// Reads the table and the clock. The file is always complete, because it is only ever
    /// replaced.
    fn read(dir: &Path) -> Result<(Self, Micros), Error> {
        let content = match fs::read_to_string(dir.join("locks")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok((Self::default(), micros()));
            }
            content => content.map_err(unusable)?,
        };
        let now = micros();
        let mut lines = content.lines();
        let head = lines.next().and_then(|line| line.split_once(' '));
        let head = head.and_then(|(then, floor)| Some((then.parse().ok()?, floor.parse().ok()?)));
        let Some((then, floor)) = head else { return Err(unreadable()) };
        let mut table = Self { locks: BTreeMap::new(), floor };
        for line in lines {
            let (name, machine) = line.split_once('\t').ok_or_else(unreadable)?;
            table.locks.insert(name.to_owned(), text::replay(machine, "")?.machine);
        }
        // The clock restarts with the machine, and no holder survives that.
        table.forget_free(if now < then { Micros::MAX } else { now });
        Ok((table, now))
    }

    fn write(&mut self, dir: &Path, now: Micros) -> Result<(), Error> {
        self.forget_free(now);
        let mut content = format!("{now} {}\n", self.floor);
        for (name, machine) in &self.locks {
            content.extend([name, "\t", &text::snapshot(machine), "\n"]);
        }
        fs::write(dir.join("locks.new"), content).map_err(unusable)?;
        fs::rename(dir.join("locks.new"), dir.join("locks")).map_err(unusable)
    }

    /// Deletes the records of free names, so that names that are used once leave nothing. Their
    /// tokens stay below the floor, from which a name without a record continues.
    fn forget_free(&mut self, now: Micros) {
        let floor = &mut self.floor;
        self.locks.retain(|_, machine| {
            let free = machine.is_free(now);
            if free {
                *floor = machine.last_token().max(*floor);
            }
            !free
        });
    }

    fn apply(&mut self, name: &LockName, op: &Op, now: Micros) -> Outcome {
        let fresh = Machine::after_token(self.floor);
        let machine = self.locks.entry(name.as_str().to_owned()).or_insert(fresh);
        // Waiters poll for their grants.
        machine.apply(op, now, &mut Vec::new())
    }
}

impl Files {
    fn open(dir: &Path) -> DynBackend {
        Arc::new(Self { store: format!("files:{}", dir.display()), dir: dir.to_owned() })
    }

    /// Changes the table in one step. The step blocks, so it runs on a blocking thread. It
    /// completes even if the future is dropped.
    async fn visit<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Table, Micros) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let dir = self.dir.clone();
        let turn = TURN.clone().lock_owned().await;
        let visit = move || {
            let _turn = turn;
            let gate = File::create(dir.join("gate")).map_err(unusable)?;
            gate.lock().map_err(unusable)?;
            let (mut table, now) = Table::read(&dir)?;
            let result = change(&mut table, now);
            table.write(&dir, now).map(|()| result)
        };
        spawn_blocking(visit).await.unwrap_or_else(|ended| Err(unusable(io::Error::other(ended))))
    }

    /// Reads the table without the file lock, so no other call has to wait.
    async fn look(&self) -> Result<(Table, Micros), Error> {
        let dir = self.dir.clone();
        spawn_blocking(move || Table::read(&dir))
            .await
            .unwrap_or_else(|ended| Err(unusable(io::Error::other(ended))))
    }
}

#[async_trait]
impl Backend for Files {
    fn store(&self) -> &str {
        &self.store
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees::WEAKEST
            .with_fencing(Fencing::Volatile)
            .with_orphan_release(OrphanRelease::LeaseEnd)
            .with_fairness(Fairness::Fifo)
            .with_wake_up(WakeUp::Poll)
            .with_scope(Scope::Machine)
            .with_permits(Permits::Counted)
            .with_notes(Notes::Kept)
    }

    fn acquire(&self, request: &AcquireRequest) -> Answer<Acquired> {
        let (files, request) = (self.clone(), request.clone());
        Answer::later(async move {
            let op = acquire_op(&request);
            let name = request.name.clone();
            let outcome = files.visit(move |table, now| table.apply(&name, &op, now)).await?;
            acquired(request.mode, outcome)
        })
    }

    async fn granted(&self, request: &AcquireRequest) -> Result<Grant, Error> {
        let (claim, lease) = (request.claim, micros_of(request.lease));
        let keep = Op::Renew { claim, mode: request.mode, lease, is_last: false };
        loop {
            let (name, keep) = (request.name.clone(), keep.clone());
            match self.visit(move |table, now| table.apply(&name, &keep, now)).await? {
                Outcome::Granted(granted) => return grant(&granted),
                Outcome::Queued { .. } => {}
                Outcome::Spent => return Err(spent()),
                _ => {
                    let lost =
                        "the place in the queue ended with its lease: ask for the lock again";
                    return Err(Error::new(ErrorKind::NotHeld, lost));
                }
            }
            // Polls until a write is necessary: for a grant, for the expiry of a lease, or for a
            // heartbeat.
            let sign_of_life = micros().saturating_add(lease / 3);
            loop {
                sleep(LOOK_EVERY).await;
                let (table, now) = self.look().await?;
                let machine = table.locks.get(request.name.as_str());
                let waits = machine.is_some_and(|machine| {
                    machine.grant_of(claim).is_none()
                        && machine.ahead_of(claim).is_some()
                        && machine.next_expiry().is_some_and(|end| end > now)
                });
                if !waits || now >= sign_of_life {
                    break;
                }
            }
        }
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Renewed>, Error> {
        let renewals = renewals.to_vec();
        let renew = move |table: &mut Table, now| {
            let one = |Renewal { claim, mode, lease, token, is_last, .. }: &Renewal| {
                let op = Op::Renew {
                    claim: claim.id,
                    mode: *mode,
                    lease: micros_of(*lease),
                    is_last: *is_last,
                };
                match (table.apply(&claim.name, &op, now), token) {
                    // A grant that came after a loss of data.
                    (Outcome::Granted(of), Some(own)) if of.token != own.get() => {
                        Renewed::Forgotten
                    }
                    (Outcome::Granted(_), _) => Renewed::Kept,
                    _ => Renewed::Lost,
                }
            };
            renewals.iter().map(one).collect()
        };
        self.visit(renew).await
    }

    fn release(&self, claim: &Claim) -> Answer<Released> {
        let (files, claim) = (self.clone(), claim.clone());
        Answer::later(async move {
            let op = Op::Release { claim: claim.id, used: claim.used, bar: 0 };
            let outcome = files.visit(move |table, now| table.apply(&claim.name, &op, now)).await?;
            Ok(match outcome {
                Outcome::Released => Released::Released,
                _ => Released::AlreadyLost,
            })
        })
    }

    async fn inspect(&self, name: &LockName) -> Result<LockState, Error> {
        let (table, now) = self.look().await?;
        let free = Machine::after_token(table.floor);
        Ok(table.locks.get(name.as_str()).unwrap_or(&free).inspect(now))
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }

    fn acquire_all(&self, requests: &[AcquireRequest]) -> Option<Answer<Vec<Acquired>>> {
        let (files, requests) = (self.clone(), requests.to_vec());
        Some(Answer::later(async move {
            let all = move |table: &mut Table, now| {
                let one = |request: &AcquireRequest| {
                    let outcome = table.apply(&request.name, &acquire_op(request), now);
                    acquired(request.mode, outcome)
                };
                // Every request is applied, also those after a refused one.
                requests.iter().map(one).collect::<Vec<_>>()
            };
            let answers: Result<_, Error> = files.visit(all).await?.into_iter().collect();
            answers.map_err(|error| error.with_certainty(Certainty::Unknown))
        }))
    }
}

#[async_trait]
impl Admin for Files {
    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockName>, Error> {
        let (table, _) = self.look().await?;
        let names = table.locks.keys().filter(|name| name.starts_with(prefix));
        names.take(limit).map(|name| LockName::new(name)).collect()
    }
}

fn acquire_op(request: &AcquireRequest) -> Op {
    Op::Acquire {
        claim: request.claim,
        mode: request.mode,
        lease: micros_of(request.lease),
        block: request.tokens,
        queue: request.queue,
        home: 0,
        note: request.note.clone(),
    }
}

fn acquired(mode: Mode, outcome: Outcome) -> Result<Acquired, Error> {
    match outcome {
        Outcome::Granted(granted) => grant(&granted).map(Acquired::Granted),
        Outcome::Queued { .. } => Ok(Acquired::Queued),
        Outcome::Conflict { capacity } => Err(conflict(mode, capacity)),
        Outcome::Spent => Err(spent()),
        _ => Ok(Acquired::Busy),
    }
}

/// The store's clock is the holder's clock.
fn grant(granted: &Granted) -> Result<Grant, Error> {
    Ok(Grant::new(
        FencingToken::new(granted.token)?,
        granted.block,
        Instant::from_nanos(granted.since.saturating_mul(1000)),
    ))
}

fn micros() -> Micros {
    Clock::Boot.now().as_nanos() / 1000
}

fn micros_of(time: Duration) -> Micros {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn unusable(error: io::Error) -> Error {
    let what =
        format!("the file of locks can't be used ({error}): look at the disk and the rights");
    Error::new(ErrorKind::Unavailable, what).with_source(error)
}

fn unreadable() -> Error {
    let what = "the file of locks is not of this program: give the locks a directory of their own";
    Error::new(ErrorKind::Protocol, what)
}

/// The functions that the kit needs: how to open a store, and how to inspect it.
struct InFiles;

struct Open(TempDir);

#[async_trait]
impl Store for InFiles {
    fn name(&self) -> &str {
        "files"
    }

    async fn open(&self) -> Result<Box<dyn Opened>, Stop> {
        // In memory if possible. Some file systems write a file to the disk before it replaces
        // another, and on a busy disk that could take longer than the leases of the kit.
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { env::temp_dir() };
        Ok(Box::new(Open(TempDir::with_prefix_in("dlock-files-", parent)?)))
    }

    async fn connect_to(&self, address: &str) -> Result<DynBackend, Error> {
        Ok(Files::open(Path::new(address)))
    }
}

#[async_trait]
impl Opened for Open {
    async fn connect(&self) -> Result<DynBackend, Error> {
        Ok(Files::open(self.0.path()))
    }

    fn address(&self) -> Option<String> {
        self.0.path().to_str().map(str::to_owned)
    }

    async fn leftovers(&self, name: &LockName) -> Result<Vec<String>, Stop> {
        let (table, _) = Table::read(self.0.path())?;
        let machine = table.locks.get(name.as_str());
        Ok(machine
            .map(|machine| format!("{name}: {}", text::snapshot(machine)))
            .into_iter()
            .collect())
    }

    fn bounds(&self) -> Bounds {
        let mut bounds = Bounds::default();
        // Each call waits for the file lock behind those of all other cases.
        bounds.lease = Duration::from_millis(1250);
        bounds
    }

    async fn forget(&self, name: &LockName) -> Result<bool, Stop> {
        // A free lock is removed from the table at once.
        Ok(!Table::read(self.0.path())?.0.locks.contains_key(name.as_str()))
    }
}

fn main() {
    dlock_testkit::run(InFiles)
}
