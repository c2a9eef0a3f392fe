//! Rights that are taken from a user at run time: a script may stop at any of its commands, and
//! keeps what it has written until then.

use std::time::Duration;

use dlock_core::{AcquireRequest, Acquired, Certainty, DynBackend, Mode, Renewal, Renewed};
use dlock_testlab::{Flow, Stop, redis::RedisServer};
use tokio::time::{sleep, timeout};

use crate::support::{ask, attempt, behind, connect, exclusive, queue, run, start, take, until};

/// The commands of the scripts.
const COMMANDS: [&str; 22] = [
    "time",
    "get",
    "set",
    "setrange",
    "del",
    "exists",
    "pexpire",
    "pttl",
    "hget",
    "hset",
    "hdel",
    "zadd",
    "zrem",
    "zrange",
    "zrangebyscore",
    "zrank",
    "zscore",
    "zcard",
    "publish",
    "xadd",
    "xrevrange",
    "evalsha",
];

/// One request of a user who lacks a right.
#[derive(Clone, Copy, Debug)]
enum Verb {
    /// Releases an exclusive lock.
    Release,
    /// Releases a shared lock that has other holders.
    Part,
    /// Cancels an exclusive claim that waits.
    Cancel,
    /// Makes an exclusive lock shared.
    Downgrade,
    /// Renews a shared lock.
    Renew,
    /// Tries to acquire the lock that others share.
    Join,
}

const VERBS: [Verb; 6] =
    [Verb::Release, Verb::Part, Verb::Cancel, Verb::Downgrade, Verb::Renew, Verb::Join];

/// A lock, the request that is refused, and the claims of others.
struct Case {
    what: String,
    actor: DynBackend,
    verb: Verb,
    own: AcquireRequest,
    /// A shared holder that has all rights.
    other: Option<AcquireRequest>,
    waiting: Vec<AcquireRequest>,
}

/// A client with its own user.
async fn actor(server: &RedisServer, command: &str) -> Result<DynBackend, Stop> {
    server.command(&["ACL", "SETUSER", command, "on", ">p", "~*", "&*", "+@all"]).await?.ok()?;
    Ok(connect(&server.url().replace("//", &format!("//{command}:p@"))).await?)
}

impl Case {
    async fn prepare(
        (actor, command): (&DynBackend, &str),
        verb: Verb,
        waits: Mode,
        (others, waiter): (&DynBackend, &DynBackend),
    ) -> Result<Self, Stop> {
        let what = format!("{verb:?} without {command}, {waits:?} waits");
        let name = format!("{command}-{verb:?}-{}", waits.weight());
        let own = match verb {
            Verb::Release | Verb::Cancel | Verb::Downgrade => exclusive(&name),
            Verb::Part | Verb::Renew | Verb::Join => ask(&name, Mode::Shared),
        };
        let shares = matches!(verb, Verb::Cancel | Verb::Part | Verb::Renew | Verb::Join);
        let other = shares.then(|| ask(&name, Mode::Shared));
        if let Some(other) = &other {
            take(others, other).await?;
        }
        match verb {
            Verb::Cancel => queue(actor, &own).await?,
            Verb::Join => {}
            _ => drop(take(actor, &own).await?),
        }
        let waiting: Vec<_> = match verb {
            Verb::Join => Vec::new(),
            _ => (0..2).map(|_| ask(&name, waits)).collect(),
        };
        // If the waiter would share the lock at once, an exclusive claim waits before it.
        let first = matches!(verb, Verb::Part | Verb::Renew).then(|| exclusive(&name));
        let waiting: Vec<_> = first.into_iter().chain(waiting).collect();
        for request in &waiting {
            queue(waiter, request).await?;
        }
        Ok(Self { what, actor: actor.clone(), verb, own, other, waiting })
    }

    /// Sends the request. Returns whether its client treats the lock as held afterwards.
    async fn send(&self) -> Result<bool, Stop> {
        let own = &self.own;
        match self.verb {
            Verb::Release | Verb::Part | Verb::Cancel => {
                // The client has ended its claim, even if the server refuses the release.
                let _ = self.actor.release(&own.as_claim().with_used(1)).await;
                Ok(false)
            }
            Verb::Downgrade | Verb::Renew => {
                let renewal = Renewal::new(own.as_claim(), Mode::Shared, own.lease);
                match self.actor.renew(&[renewal]).await {
                    // After an error, the outcome is unknown, and the client relies on the lease
                    // before it.
                    Ok(renewed) => Ok(renewed != [Renewed::Lost]),
                    Err(_) => Ok(true),
                }
            }
            Verb::Join => Ok(matches!(self.actor.acquire(own).await, Ok(Acquired::Granted(_)))),
        }
    }

    /// Checks that the store keeps these claims, and that the lock is free once all are released.
    async fn judge(&self, held: &[&AcquireRequest], others: &DynBackend) -> Result<(), Stop> {
        let what = &self.what;
        if !held.is_empty() {
            let tried = others.acquire(&attempt(self.own.name.as_str())).await?;
            if tried != Acquired::Busy {
                return Err(Stop::violation(format!("{what}: {tried:?}, and {held:?} hold it")));
            }
        }
        let shared = matches!(self.verb, Verb::Downgrade);
        for request in held {
            let mode =
                if shared && request.claim == self.own.claim { Mode::Shared } else { request.mode };
            let renewal = Renewal::new(request.as_claim(), mode, request.lease);
            let renewed = others.renew(&[renewal]).await?;
            if renewed != [Renewed::Kept] {
                return Err(Stop::violation(format!("{what}: {renewed:?} of {request:?}")));
            }
        }
        for request in self.waiting.iter().chain(&self.other).chain([&self.own]) {
            others.release(&request.as_claim()).await?;
        }
        let tried = others.acquire(&attempt(self.own.name.as_str())).await?;
        if !matches!(tried, Acquired::Granted(_)) {
            return Err(Stop::violation(format!("{what}: nobody can have the lock: {tried:?}")));
        }
        Ok(())
    }
}

#[test]
fn a_refused_command_leaves_no_claim_without_a_lock() {
    run(async {
        let server = start().await?;
        let others = connect(&server.url()).await?;
        // The waiter receives messages, but its polls do not arrive.
        let (proxy, waiter) = behind(&server, "?dlock.response_timeout=60s").await?;
        let mut cases = Vec::new();
        for command in COMMANDS {
            let actor = actor(&server, command).await?;
            for verb in VERBS {
                for waits in [Mode::Exclusive, Mode::Shared] {
                    let clients = (&others, &waiter);
                    cases.push(Case::prepare((&actor, command), verb, waits, clients).await?);
                }
            }
        }
        proxy.requests(Flow::Hold);
        for command in COMMANDS {
            let right = format!("-{command}");
            server.command(&["ACL", "SETUSER", command, &right]).await?.ok()?;
        }
        let mut held = Vec::new();
        for case in &cases {
            held.push(case.send().await?);
        }
        // The messages have been sent.
        sleep(Duration::from_millis(200)).await;
        let mut failed = Vec::new();
        for (case, own) in cases.iter().zip(held) {
            let mut held: Vec<_> = case.other.iter().collect();
            held.extend(own.then_some(&case.own));
            for request in &case.waiting {
                if let Ok(granted) = timeout(Duration::ZERO, waiter.granted(request)).await {
                    granted?;
                    held.push(request);
                }
            }
            match case.judge(&held, &others).await {
                Ok(()) => {}
                Err(stop) => failed.push(format!("{stop:?}")),
            }
        }
        assert!(failed.is_empty(), "{} of {}: {failed:#?}", failed.len(), cases.len());
        Ok(())
    });
}

/// The ways to store a lock that have code of their own for a claim.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// With `acquire_all`, too.
    One,
    Durable,
    Plain,
    Quorum,
}

/// Claims of a client that loses the right to one command.
struct Lossy {
    command: &'static str,
    actor: DynBackend,
    held: AcquireRequest,
    renewed: AcquireRequest,
}

impl Form {
    fn url(self, servers: &[RedisServer], user: &str) -> String {
        let all: Vec<_> = servers.iter().map(RedisServer::address).collect();
        let (scheme, option) = match self {
            Self::One => ("redis", ""),
            Self::Durable => ("redis", "?dlock.durability=majority"),
            Self::Plain => ("redis", "?dlock.plain=true"),
            Self::Quorum => ("redis+quorum", "?dlock.restart_guard=0s"),
        };
        format!("{scheme}://{user}{}{option}", all.join(","))
    }

    /// Checks the claims of a client that lacks one command at a time.
    async fn judge(self) -> Result<(), Stop> {
        let mut servers = Vec::new();
        for _ in 0..if matches!(self, Self::Quorum) { 3 } else { 1 } {
            servers.push(start().await?);
        }
        let others = connect(&self.url(&servers, "")).await?;
        let commands = COMMANDS.iter().chain(&["wait"]);
        let mut failed = Vec::new();
        for command in commands {
            let set = async |right: &str| {
                for server in &servers {
                    let words = ["ACL", "SETUSER", command, "on", ">p", "~*", "&*", right];
                    server.command(&words).await?.ok()?;
                }
                Ok::<_, Stop>(())
            };
            set("+@all").await?;
            let actor = connect(&self.url(&servers, &format!("{command}:p@"))).await?;
            let (held, renewed) =
                (exclusive(&format!("{command}-held")), exclusive(&format!("{command}-renewed")));
            take(&actor, &held).await?;
            take(&actor, &renewed).await?;
            set(&format!("-{command}")).await?;
            let lossy = Lossy { command, actor, held, renewed };
            let left = lossy.use_them(&others).await;
            set("+@all").await?;
            let judged = match left {
                Ok(left) => lossy.release(&left, &others).await,
                Err(stop) => Err(stop),
            };
            if let Err(stop) = judged {
                failed.push(format!("{self:?} without {command}: {stop:?}"));
            }
        }
        assert!(failed.is_empty(), "{failed:#?}");
        Ok(())
    }
}

impl Lossy {
    /// Sends the requests, and returns the claims that the core would release later.
    async fn use_them(&self, others: &DynBackend) -> Result<Vec<AcquireRequest>, Stop> {
        let mut left = Vec::new();
        if self.actor.release(&self.held.as_claim().with_used(1)).await.is_err() {
            left.push(self.held.clone());
        }
        let renewal = Renewal::new(self.renewed.as_claim(), Mode::Exclusive, self.renewed.lease);
        if self.actor.renew(&[renewal]).await.is_ok_and(|renewed| renewed == [Renewed::Kept]) {
            self.held_by(&self.renewed, others).await?;
        }
        left.push(self.renewed.clone());
        let (keeper, busy) = (self.ask("busy"), self.ask("busy"));
        take(others, &keeper).await?;
        for request in [self.ask("tried"), busy] {
            match self.actor.acquire(&request).await {
                Ok(Acquired::Busy) => {}
                Ok(_) => {
                    self.held_by(&request, others).await?;
                    left.push(request);
                }
                Err(error) if error.certainty() == Certainty::NotApplied => {}
                Err(_) => left.push(request),
            }
        }
        self.held_by(&keeper, others).await?;
        others.release(&keeper.as_claim().with_used(1)).await?;
        let together = [self.ask("one"), self.ask("two")];
        match self.actor.acquire_all(&together) {
            None => {}
            Some(answer) => match answer.await {
                Ok(answers) => {
                    for (request, answer) in together.into_iter().zip(answers) {
                        if matches!(answer, Acquired::Granted(_)) {
                            self.held_by(&request, others).await?;
                            left.push(request);
                        }
                    }
                }
                Err(error) if error.certainty() == Certainty::NotApplied => {}
                Err(_) => left.extend(together),
            },
        }
        Ok(left)
    }

    fn ask(&self, what: &str) -> AcquireRequest {
        attempt(&format!("{}-{what}", self.command))
    }

    /// Fails unless this claim, which its client treats as held, holds its lock.
    async fn held_by(&self, request: &AcquireRequest, others: &DynBackend) -> Result<(), Stop> {
        let tried = others.acquire(&attempt(request.name.as_str())).await?;
        let renewal = Renewal::new(request.as_claim(), request.mode, request.lease);
        let renewed = others.renew(&[renewal]).await?;
        match tried == Acquired::Busy && renewed == [Renewed::Kept] {
            true => Ok(()),
            false => Err(Stop::violation(format!("{}: {tried:?}, {renewed:?}", request.name))),
        }
    }

    /// Releases the claims with all rights, as the core does, and checks that all locks are free.
    async fn release(&self, left: &[AcquireRequest], others: &DynBackend) -> Result<(), Stop> {
        for request in left {
            self.actor.release(&request.as_claim().with_used(1)).await?;
        }
        for what in ["held", "renewed", "tried", "busy", "one", "two"] {
            until(&format!("{what} is free"), async || {
                let request = self.ask(what);
                let tried = others.acquire(&request).await?;
                others.release(&request.as_claim().with_used(1)).await?;
                Ok(matches!(tried, Acquired::Granted(_)))
            })
            .await?;
        }
        Ok(())
    }
}

#[test]
fn a_refused_command_of_several_claims_leaves_no_lock_held() {
    run(Form::One.judge());
}

#[test]
fn a_refused_command_of_a_durable_claim_leaves_no_lock_held() {
    run(Form::Durable.judge());
}

#[test]
fn a_refused_command_of_the_plain_form_leaves_no_lock_held() {
    run(Form::Plain.judge());
}

#[test]
fn a_refused_command_of_a_quorum_leaves_no_lock_held() {
    run(Form::Quorum.judge());
}
