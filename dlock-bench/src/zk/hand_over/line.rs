//! Those who wait for the lock, one behind the other.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use dlock::{Fair, Guard, Locks};
use dlock_testlab::zookeeper::ZooKeeperServer;
use tokio::task::JoinSet;

use crate::{
    Failure,
    bench::Store,
    clock,
    crew::{Hold, Holds},
    stats::{median, middle},
    zk::counters::{Counted, Counters},
};

const SESSIONS: usize = 4;
const NAME: &str = "hand-over";

/// For so long nothing may happen until all have settled; claims that are held for some time are
/// watched after a quarter of a second.
const QUIET: Duration = Duration::from_millis(600);
const POLL: Duration = Duration::from_millis(50);
/// A backstop: nothing takes so long.
const BOUND: Duration = Duration::from_secs(20);

/// Sessions over one server, which nobody else uses.
pub(super) struct Line<'a> {
    server: &'a ZooKeeperServer,
    locks: Vec<Fair>,
    // Their sessions end with them.
    _sessions: Vec<Locks>,
}

/// When the next hand-over comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// As soon as somebody waits.
    Quick,
    /// When nothing else goes on, so that only what it sends is counted.
    Settled,
}

/// What came of hand-overs.
pub(super) struct Run {
    latencies: Vec<Duration>,
    counted: Vec<Counted>,
}

impl Run {
    /// The median in microseconds.
    pub(super) fn p50(&self) -> f64 {
        median(self.latencies.clone())
    }

    /// Commands of a hand-over.
    pub(super) fn commands(&self) -> f64 {
        self.each(Counted::commands)
    }

    /// Commands of most hand-overs that were counted one by one: a ping may come between.
    pub(super) fn usual_commands(&self) -> f64 {
        middle(&self.counted.iter().map(Counted::commands).collect::<Vec<_>>())
    }

    /// Sessions that were told of something in a hand-over.
    pub(super) fn notices(&self) -> f64 {
        self.each(Counted::notices)
    }

    fn each(&self, of: fn(&Counted) -> f64) -> f64 {
        let hand_overs = self.latencies.iter().map(|_| 1.0).sum::<f64>();
        self.counted.iter().map(of).sum::<f64>() / hand_overs
    }
}

impl<'a> Line<'a> {
    pub(super) async fn connect(server: &'a ZooKeeperServer) -> Result<Self, Failure> {
        let (mut locks, mut sessions) = (Vec::new(), Vec::new());
        for _ in 0..SESSIONS {
            let session = dlock::connect(&server.url()).await?;
            locks.push(session.fair(NAME)?);
            sessions.push(session);
        }
        Ok(Self { server, locks, _sessions: sessions })
    }

    /// So many times, one holds and one waits. `Pace::Settled` waits until nothing else goes on.
    pub(super) async fn singles(&self, times: usize, pace: Pace) -> Result<Run, Failure> {
        let mut run = Run { latencies: Vec::new(), counted: Vec::new() };
        let mut holder = self.locks[0].lock().await?;
        for next in 1..=times {
            let mut waiters = JoinSet::new();
            self.queue(&mut waiters, next, 1).await?;
            if pace == Pace::Settled {
                self.settle().await?;
            }
            let before = Counters::look(self.server).await?;
            let left = clock::now();
            holder.release().await?;
            let (hold, guard) = waiters.join_next().await.ok_or("nobody waits")???;
            run.latencies.push(clock::between(left, hold.got));
            run.counted.push(before.since(self.server).await?);
            holder = guard.ok_or("the last one has let go")?;
        }
        holder.release().await?;
        Ok(run)
    }

    /// So many wait, and each gives the lock back as soon as it has it. All have others before them
    /// when they come.
    pub(super) async fn run(&self, waiters: usize) -> Result<Run, Failure> {
        let front = self.locks[0].lock().await?;
        let mut first = JoinSet::new();
        self.queue(&mut first, 1, 1).await?;
        let mut line = JoinSet::new();
        self.queue(&mut line, 2, waiters).await?;
        front.release().await?;
        let (mut holder, guard) = first.join_next().await.ok_or("nobody waits")???;
        self.settle().await?;

        let before = Counters::look(self.server).await?;
        let guard = guard.ok_or("the first one has let go")?;
        holder.left = clock::now();
        guard.release().await?;
        let (mut holds, mut last) = (vec![holder], None);
        while let Some(done) = line.join_next().await {
            let (hold, guard) = done??;
            holds.push(hold);
            last = last.or(guard);
        }
        let counted = vec![before.since(self.server).await?];
        last.ok_or("the last one has let go")?.release().await?;
        let holds = Holds::new(holds, 1, SESSIONS)?;
        Ok(Run { latencies: holds.latencies(), counted })
    }

    /// Queues so many one behind the other, in turns from this session on: neighbours have
    /// different sessions. The last to get the lock keeps it.
    async fn queue(
        &self,
        tasks: &mut JoinSet<Result<(Hold, Option<Guard>), Failure>>,
        from: usize,
        waiters: usize,
    ) -> Result<(), Failure> {
        let served = Arc::new(AtomicUsize::new(0));
        let nodes = Counters::look(self.server).await?.ephemerals();
        for (at, expected) in (0..waiters).zip(1_u32..) {
            let client = (from + at) % SESSIONS;
            let (lock, served) = (self.locks[client].clone(), Arc::clone(&served));
            tasks.spawn(async move {
                let guard = lock.lock().await?;
                let got = clock::now();
                let token = guard.token().get();
                let hold = Hold { process: 0, client, token, got, left: clock::now() };
                if served.fetch_add(1, Ordering::SeqCst) + 1 == waiters {
                    return Ok((hold, Some(guard)));
                }
                guard.release().await?;
                Ok((hold, None))
            });
            let start = clock::now();
            while Counters::look(self.server).await?.ephemerals() < nodes + f64::from(expected) {
                if clock::since(start) > BOUND {
                    return Err("a claim does not get into the queue".into());
                }
            }
        }
        Ok(())
    }

    /// Waits until all watch what they want to watch.
    async fn settle(&self) -> Result<(), Failure> {
        let start = clock::now();
        let (mut seen, mut since) = (f64::NAN, start);
        while clock::since(since) < QUIET {
            tokio::time::sleep(POLL).await;
            let watches = Counters::look(self.server).await?.watches();
            if watches != seen {
                (seen, since) = (watches, clock::now());
            }
            if clock::since(start) > BOUND {
                return Err("the watches don't come to rest".into());
            }
        }
        Ok(())
    }
}
