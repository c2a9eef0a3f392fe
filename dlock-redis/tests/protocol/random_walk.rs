//! A random walk of clients that connect, die, and lose their connections, while the server is checked
//! all the time: every key has a lifetime, and the flag of the last token announces the other keys.

use std::{collections::BTreeMap, sync::Arc};

use dlock_core::{AcquireRequest, Acquired, ClaimId, DynBackend, Grant, Mode, Queue, Renewal};
use dlock_testlab::{Stop, Verdict, redis::RedisServer};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::time::{Duration, Instant, sleep, timeout};

use crate::support::{ask, connect, millis, run, start, until};

const WHILE: Duration = Duration::from_secs(8);
const CLIENTS: usize = 4;
/// The last name is a semaphore.
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Every key has a lifetime; without a `q` in the last token there are no waiters and no shared
/// holders; the last token outlives the others; each waiter and shared holder has a record, and the
/// weights add up; no shared holder exists beside an exclusive one.
const LOOK: &str = r"
local wrong={}
local function say(what,key) wrong[#wrong+1]=what..' '..key end
local c=redis.call
for _,key in ipairs(c('KEYS','dlock:*:*')) do
  if c('PTTL',key)<0 and c('EXISTS',key)==1 then say('no end:',key) end
  local tag,kind,name=string.match(key,'^(dlock:{%d+})(.?):(.*)$')
  local function of(kind) return tag..kind..':'..name end
  if kind=='q' or kind=='r' then
    local used=0
    for _,id in ipairs(c('ZRANGE',key,0,-1)) do
      local w=c('HGET',of('w'),id)
      if not w then say('no entry for '..id..' of:',key) end
      used=used+string.match(w or '0','^%d+')
    end
    local sum=string.match(c('HGET',of('w'),'#') or '0:0',':(%d+)$')
    if kind=='r' and used~=sum+0 then say('the sum is not '..used..' of:',key) end
    local sole=string.match(c('GET',of('')) or '','^%x+[:!+]%d')
    if kind=='r' and sole then say('an exclusive holder, too:',key) end
  end
end
return wrong";

struct Walk {
    server: Arc<RedisServer>,
    random: StdRng,
    clients: Vec<DynBackend>,
    /// Claims that may be on the server, with the client of each, and the largest token of their
    /// name that was known when they were first sent.
    claims: Vec<(usize, AcquireRequest, u64)>,
    /// The first tokens of all grants of each name, and their claims.
    tokens: BTreeMap<String, BTreeMap<u64, ClaimId>>,
    grants: usize,
}

impl Walk {
    async fn client(server: &RedisServer) -> Result<DynBackend, Stop> {
        Ok(connect(&server.url()).await?)
    }

    async fn start(seed: u64) -> Result<Self, Stop> {
        let (server, mut clients) = (start().await?, Vec::new());
        for _ in 0..CLIENTS {
            clients.push(Self::client(&server).await?);
        }
        let random = StdRng::seed_from_u64(seed);
        let (claims, tokens) = (Vec::new(), BTreeMap::new());
        Ok(Self { server: Arc::new(server), random, clients, claims, tokens, grants: 0 })
    }

    fn below(&mut self, end: usize) -> usize {
        self.random.random_range(0..end)
    }

    /// Sends a new claim, or repeats an earlier one.
    async fn acquire(&mut self) -> Verdict {
        let again = self.below(5) == 0 && !self.claims.is_empty();
        let at = match again {
            true => self.below(self.claims.len()),
            false => {
                let name = NAMES[self.below(NAMES.len())];
                let mode = match (name, self.below(3)) {
                    ("d", n) => Mode::permits(u32::try_from(n)? + 1, 3)?,
                    (_, 0) => Mode::Shared,
                    _ => Mode::Exclusive,
                };
                let queue = if self.below(3) == 0 { Queue::FailIfBusy } else { Queue::Enqueue };
                let lease = millis(100 * (1 + u64::try_from(self.below(6))?));
                let tokens = [1, 1, 1, 64][self.below(4)];
                let request =
                    ask(name, mode).with_lease(lease).with_queue(queue).with_tokens(tokens);
                let seen = self.tokens.get(name).and_then(BTreeMap::last_key_value);
                let seen = seen.map_or(0, |(last, _)| *last);
                let client = self.below(CLIENTS);
                self.claims.push((client, request, seen));
                self.claims.len() - 1
            }
        };
        let (client, request, _) = self.claims[at].clone();
        match self.clients[client].acquire(&request).await? {
            Acquired::Granted(grant) => self.saw(at, grant),
            Acquired::Queued => Ok(()),
            _ => {
                self.claims.swap_remove(at);
                Ok(())
            }
        }
    }

    /// The token of a grant is larger than all tokens that were known when its claim was first
    /// sent, and no other claim has it.
    fn saw(&mut self, at: usize, grant: Grant) -> Verdict {
        let (_, request, before) = &mut self.claims[at];
        let token = grant.token.get();
        if token <= *before {
            return Err(Stop::failed(format!("{}: {token} after {before}", request.name)));
        }
        // A repeated answer with the same grant is valid.
        *before = token - 1;
        self.grants += 1;
        let tokens = self.tokens.entry(request.name.to_string()).or_default();
        match tokens.insert(token, request.claim) {
            Some(other) if other != request.claim => {
                Err(Stop::failed(format!("{}: {token} was given twice", request.name)))
            }
            _ => Ok(()),
        }
    }

    async fn one_step(&mut self) -> Verdict {
        match self.below(100) {
            0..38 => return self.acquire().await,
            38 => drop(self.server.kill_clients().await?),
            39 => {
                let (gone, new) = (self.below(CLIENTS), Self::client(&self.server).await?);
                self.clients[gone] = new;
                self.claims.retain(|(client, ..)| *client != gone);
            }
            40..42 => sleep(millis(u64::try_from(self.below(40))?)).await,
            _ if self.claims.is_empty() => {}
            42..52 => {
                let at = self.below(self.claims.len());
                let (client, request, _) = self.claims[at].clone();
                let client = self.clients[client].clone();
                match timeout(millis(5), client.granted(&request)).await {
                    Ok(Ok(grant)) => self.saw(at, grant)?,
                    Ok(Err(_)) => drop(self.claims.swap_remove(at)),
                    Err(_) => {}
                }
            }
            52..64 => {
                let at = self.below(self.claims.len());
                let (client, request, _) = &self.claims[at];
                let (claim, lease) = (request.as_claim(), request.lease);
                let renewal = Renewal::new(claim, request.mode, lease);
                self.clients[*client].renew(&[renewal]).await?;
            }
            _ => {
                let at = self.below(self.claims.len());
                let (client, request, _) = self.claims.swap_remove(at);
                let used = self.random.random_range(0..=request.tokens);
                let claim = request.as_claim().with_used(used);
                self.clients[client].release(&claim).await?;
            }
        }
        Ok(())
    }
}

/// Checks the server at random times until it is dropped.
async fn look(server: &RedisServer) -> Verdict {
    let mut connection = server.connect().await?;
    loop {
        let wrong = connection.command(&["EVAL", LOOK, "0"]).await;
        // Its connection is cut like the others.
        let Ok(wrong) = wrong else {
            connection = server.connect().await?;
            continue;
        };
        let wrong = wrong.ok()?.texts()?;
        if !wrong.is_empty() {
            return Err(Stop::failed(wrong.join("; ")));
        }
        tokio::task::yield_now().await;
    }
}

#[test]
fn random_clients_keep_the_invariants_and_leave_no_keys() {
    run(async {
        let seed = rand::random::<u64>();
        println!("seed {seed}");
        let mut walk = Walk::start(seed).await?;
        let (server, began) = (Arc::clone(&walk.server), Instant::now());
        let walks = async {
            let mut steps = 0;
            while began.elapsed() < WHILE {
                steps += 1;
                walk.one_step().await?;
            }
            println!("{steps} steps, {} grants", walk.grants);
            Ok(())
        };
        let verdict: Verdict = tokio::select! {
            verdict = walks => verdict,
            verdict = look(&server) => verdict,
        };
        verdict?;
        assert!(walk.grants > 100, "{} grants", walk.grants);
        drop(walk);
        // The streams of tokens stay.
        until("no key is left", async || Ok(server.keys("dlock:*:*").await?.is_empty())).await
    });
}
