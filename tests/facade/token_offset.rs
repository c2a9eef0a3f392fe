//! A change of the store by its URL: tokens of the new one continue above those of the old one.

#![expect(clippy::unwrap_used, reason = "tests, and their helpers")]

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use dlock::{
    ConnectOptions, ErrorKind, FencingToken, LockOptions, Locks,
    admin::{ClaimId, Level},
    backend::{BackendUrl, DynBackend, Factory, Memory, registry},
    connect, connect_with,
    error::ConfigIssue,
    fencing::Fence,
    guard::Ended,
    job::Ran,
    kinds::Owner,
};

/// The last token that a resource has seen from another store: larger than tokens from a clock.
const SEEN: u64 = 4_611_000_000_000_000_000;

/// The largest offset.
const LARGEST: u64 = 1 << 62;

fn token(value: u64) -> FencingToken {
    FencingToken::new(value).unwrap()
}

/// One store, and how to connect to it.
#[derive(Clone)]
struct Shop {
    backends: ConnectOptions,
    url: String,
}

impl Shop {
    async fn connect(&self, options: &str) -> Locks {
        let separator = if self.url.contains('?') { '&' } else { '?' };
        let url = format!("{}{separator}dlock.lease=3s{options}", self.url);
        connect_with(&url, self.backends.clone()).await.unwrap()
    }

    /// With the offset, and without one.
    async fn both(&self) -> (Locks, Locks) {
        (self.connect(&format!("&dlock.token_offset={SEEN}")).await, self.connect("").await)
    }
}

/// Memory that all connections to one address share.
fn memory() -> ConnectOptions {
    static STORES: Mutex<Option<HashMap<String, Arc<Memory>>>> = Mutex::new(None);
    ConnectOptions::new().with_backend(Factory::new(
        "shared",
        &["shared"],
        &[],
        |url: BackendUrl| {
            let mut stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
            let stores = stores.get_or_insert_default();
            let store = stores.entry(url.address().to_owned()).or_insert_with(Memory::new);
            let store: DynBackend = store.clone();
            Box::pin(async { Ok(store) })
        },
    ))
}

/// Runs the test on memory, and on SQLite if that feature is enabled.
async fn on_each<F: Future<Output = ()>>(run: impl Fn(Shop) -> F) {
    let url = format!("shared:{}", ClaimId::random());
    run(Shop { backends: memory(), url }).await;
    if registry().schemes().contains(&"sqlite") {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("locks.db");
        let url = format!("sqlite:{}?dlock.create_schema=true", file.display());
        run(Shop { backends: ConnectOptions::new(), url }).await;
    }
}

#[tokio::test]
async fn a_token_offset_passes_a_fence_with_larger_tokens() {
    on_each(|shop| async move {
        let (locks, plain) = shop.both().await;
        let fence = Fence::starting_at(token(SEEN));
        let guard = plain.mutex("shop").unwrap().lock().await.unwrap();
        assert!(fence.admit(guard.token()).is_err(), "the store's own token is larger");
        guard.release().await.unwrap();
        let guard = locks.mutex("shop").unwrap().lock().await.unwrap();
        fence.admit(guard.token()).unwrap();
        guard.release().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn every_view_shows_the_same_token() {
    on_each(|shop| async move {
        let (locks, plain) = shop.both().await;
        for kind in 0..7 {
            let guard = match kind {
                0 => locks.mutex("n").unwrap().lock().await,
                1 => locks.fair("n").unwrap().lock().await,
                2 => locks.rw("n").unwrap().read().lock().await,
                3 => locks.rw("n").unwrap().write().lock().await,
                4 => locks.semaphore("n", 2).unwrap().acquire().await,
                5 => locks.reentrant("n").unwrap().lock_as(&Owner::new()).await,
                _ => locks.multi(["n", "m"]).unwrap().lock().await,
            };
            let guard = guard.unwrap();
            for (name, token) in guard.tokens() {
                let state = locks.inspect(&name).await.unwrap();
                assert_eq!(state.holders[0].token, Some(token), "{kind}");
                assert!(state.last_token >= Some(token) && token.get() > SEEN, "{kind}: {state:?}");
                let own = plain.inspect(&name).await.unwrap().holders[0].token.unwrap();
                assert_eq!(own.get() + SEEN, token.get(), "{kind}");
            }
            guard.release().await.unwrap();
        }
        let election = locks.election("term").unwrap();
        let led = election.campaign().await.unwrap();
        let leader = election.leader().await.unwrap().unwrap();
        assert_eq!(leader.token, Some(led.term()));
        assert!(led.term().get() > SEEN);
        led.resign().await.unwrap();
        let ran = locks.job("job").unwrap().run(|token| async move { token.get() }).await.unwrap();
        assert!(matches!(ran, Ran::Done(token) if token > SEEN), "{ran:?}");
    })
    .await;
}

#[tokio::test]
async fn waiters_and_local_hand_offs_get_the_offset_too() {
    on_each(|shop| async move {
        let (locks, _) = shop.both().await;
        let (other, _) = shop.both().await;
        let held = other.mutex("n").unwrap().lock().await.unwrap();
        let mut last = held.token();
        let (mutex, fair) = (locks.mutex("n").unwrap(), locks.fair("n").unwrap());
        let waits = async |lock: &dyn dlock::kinds::Lock| {
            let guard = lock.lock().await.unwrap();
            let token = guard.token();
            guard.release().await.unwrap();
            token
        };
        let (one, two, three, ()) =
            tokio::join!(waits(&mutex), waits(&mutex), waits(&fair), async {
                tokio::time::sleep(Duration::from_millis(200)).await;
                held.release().await.unwrap();
            });
        let mut tokens = [one, two, three];
        tokens.sort_unstable();
        for token in tokens {
            assert!(token > last, "{token:?} after {last:?}");
            last = token;
        }
    })
    .await;
}

#[tokio::test]
async fn a_revoked_lock_shows_its_offset_token_and_is_reported() {
    on_each(|shop| async move {
        let (locks, _) = shop.both().await;
        let guard = locks.mutex("n").unwrap().lock().await.unwrap();
        let taken = locks.force_release("n").await.unwrap();
        assert_eq!(taken[0].token, Some(guard.token()));
        // The store compares the token of a renewal with its own.
        assert_eq!(guard.lost().await, Ended::Revoked);
    })
    .await;
}

#[tokio::test]
async fn raised_tokens_are_those_with_the_offset() {
    on_each(|shop| async move {
        let (locks, plain) = shop.both().await;
        for above in [7, SEEN - 7, SEEN, SEEN + (1 << 60)] {
            locks.raise_tokens("n", token(above)).await.unwrap();
            let guard = locks.mutex("n").unwrap().lock().await.unwrap();
            assert!(guard.token() > token(above.max(SEEN)), "{:?} over {above}", guard.token());
            let own = plain.inspect("n").await.unwrap().last_token.unwrap();
            assert!(own < token(1 << 61), "{own:?} was raised too far");
            guard.release().await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn a_token_sum_that_overflows_is_refused_without_a_claim() {
    on_each(|shop| async move {
        let plain = shop.connect("").await;
        plain.raise_tokens("far", token(1 << 62)).await.unwrap();
        plain.mutex("far").unwrap().lock().await.unwrap().release().await.unwrap();

        let locks = shop.connect(&format!("&dlock.token_offset={LARGEST}")).await;
        let several = locks.multi(["far", "near"]).unwrap();
        let told = |error: dlock::Error| {
            assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Token), "{error}");
            let text = error.to_string();
            assert!(text.contains("\"far\"") && text.contains("smaller offset"), "{text}");
        };
        // The store has granted the claim, so it is released at once, and not when its lease ends.
        let long = LockOptions::new().with_lease(Duration::from_secs(120));
        let long = locks.with_options(long).unwrap().mutex("far").unwrap();
        told(long.try_lock().await.unwrap_err());
        tokio::time::timeout(Duration::from_secs(60), async {
            while !plain.inspect("far").await.unwrap().is_free() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await
        .expect("the refused grant still holds the lock");
        told(locks.mutex("far").unwrap().try_lock().await.unwrap_err());
        told(locks.mutex("far").unwrap().lock().await.unwrap_err());
        told(locks.fair("far").unwrap().lock().await.unwrap_err());
        told(locks.rw("far").unwrap().read().lock().await.unwrap_err());
        told(several.lock().await.unwrap_err());
        told(locks.inspect("far").await.unwrap_err());
        // A waiter gets the error when it is granted.
        let held = plain.mutex("far").unwrap().lock().await.unwrap();
        let fair = locks.fair("far").unwrap();
        let (waited, ()) = tokio::join!(fair.lock(), async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            held.release().await.unwrap();
        });
        told(waited.unwrap_err());
        // A name with enough room for the offset is not affected.
        let near = locks.mutex("near").unwrap().lock().await.unwrap();
        assert!(near.token().get() > LARGEST);
        near.release().await.unwrap();
        locks.shutdown(Duration::from_secs(60)).await.unwrap();
        for name in ["far", "near"] {
            assert!(plain.inspect(name).await.unwrap().is_free(), "{name}");
        }
    })
    .await;
}

#[tokio::test]
async fn the_suggested_offset_is_sufficient() {
    on_each(|shop| async move {
        let plain = shop.connect("").await;
        let seen = token(SEEN);
        let finding = plain.examine_token(seen).await.unwrap();
        assert_eq!(finding.level, Level::Wrong, "{finding:?}");
        let remedy = finding.remedy.unwrap();
        let option = remedy.split_whitespace().find(|word| word.starts_with("dlock.token_offset="));
        let locks = shop.connect(&format!("&{}", option.unwrap())).await;
        let finding = locks.examine_token(seen).await.unwrap();
        assert_eq!(finding.level, Level::Fine, "{finding:?}");
        assert!(finding.found.contains(&SEEN.to_string()), "{finding:?}");
        let about = |findings: Vec<dlock::admin::Finding>| {
            findings.into_iter().find(|finding| finding.about == "token offset")
        };
        assert_eq!(about(plain.examine().await.unwrap()), None);
        let finding = about(locks.examine().await.unwrap()).unwrap();
        assert!(finding.found.contains(&SEEN.to_string()), "{finding:?}");
        // If the tokens are larger already, nothing changes.
        assert_eq!(plain.examine_token(token(1)).await.unwrap().level, Level::Fine);
    })
    .await;
}

#[tokio::test]
async fn an_invalid_offset_is_refused_with_the_valid_range() {
    for wrong in ["-1", "+1", "x", "", "1.5", "1e15", "4611686018427387905", "18446744073709551616"]
    {
        let error = connect(&format!("memory:?dlock.token_offset={wrong}")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::OptionValue), "{wrong}: {error}");
        let range = "write a whole number from 0 to 4611686018427387904";
        assert!(error.to_string().contains(range), "{wrong}: {error}");
    }
    for right in ["0", "1", "4611686018427387904"] {
        let locks = connect(&format!("memory:?dlock.token_offset={right}")).await.unwrap();
        let guard = locks.mutex("n").unwrap().lock().await.unwrap();
        assert!(guard.token().get() > right.parse().unwrap());
    }
}
