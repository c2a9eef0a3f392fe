use std::{
    future::pending,
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt;
use tokio::{
    runtime::{Builder, Handle},
    sync::{Notify, Semaphore},
};

use super::{Life, SessionBase, Sessions, StoreSession};
use crate::{
    AcquireRequest, Answer, Certainty, Claim, Clock, ConfigIssue, Error, ErrorKind, FencingToken,
    Instant, LockName, Mode, Renewal, StoreEvent, StoreEventSender, StoreEvents, current_runtime,
    sync::Mutex,
};

const LEASE: Duration = Duration::from_secs(60);

struct TestClaim(Life);

impl Deref for TestClaim {
    type Target = Life;

    fn deref(&self) -> &Life {
        &self.0
    }
}

struct TestSession(SessionBase<TestClaim>);

impl Deref for TestSession {
    type Target = SessionBase<TestClaim>;

    fn deref(&self) -> &SessionBase<TestClaim> {
        &self.0
    }
}

fn request(lease: Duration) -> AcquireRequest {
    AcquireRequest::new(LockName::new("x").unwrap(), Mode::Exclusive, lease).with_tokens(9)
}

fn token(token: u64) -> FencingToken {
    FencingToken::new(token).unwrap()
}

fn renewal(claim: &Life, lease: Duration) -> Renewal {
    let of = Claim::new(LockName::new("x").unwrap(), claim.claim());
    Renewal::new(of, Mode::Exclusive, lease)
}

fn no_answer() -> Error {
    Error::new(ErrorKind::Unavailable, "no answer")
}

fn session(response_timeout: Duration) -> (TestSession, StoreEvents) {
    let events = StoreEventSender::new(16);
    let (now, received) = (Clock::Boot.now(), events.subscribe());
    (
        TestSession(SessionBase::new(
            now,
            events,
            current_runtime().unwrap(),
            response_timeout,
            no_answer,
        )),
        received,
    )
}

fn later(by: Duration) -> Instant {
    Clock::Boot.now().saturating_add(by)
}

impl TestSession {
    fn claim(&self, lease: Duration) -> Arc<TestClaim> {
        let request = request(lease);
        self.claim_of(&request, || TestClaim(Life::new(&request, 4)))
    }

    fn held(&self, lease: Duration) -> Arc<TestClaim> {
        let claim = self.claim(lease);
        let (grant, first) = claim.grant(token(7), Clock::Boot.now()).unwrap();
        assert_eq!((grant.token, grant.tokens, first), (token(7), 4, true));
        self.granted(&claim);
        claim
    }
}

#[tokio::test]
async fn a_lease_does_not_end_while_a_caller_waits() {
    let (session, _) = session(LEASE);
    let claim = session.claim(Duration::ZERO);
    let waiting = claim.wait();
    let now = later(Duration::from_secs(1));
    assert!(session.lapse(now).0.is_empty());
    drop(waiting);
    let (lapsed, next) = session.lapse(now);
    assert!(Arc::ptr_eq(&lapsed[0], &claim) && next.is_none() && claim.is_over());
    assert!(session.lapse(now).0.is_empty());
}

#[tokio::test]
async fn a_loss_is_reported_once_and_not_after_a_release() {
    let (session, mut events) = session(LEASE);
    let (lost, left, waiter) = (session.held(LEASE), session.held(LEASE), session.claim(LEASE));
    assert!(!left.leave());
    for claim in [&lost, &lost, &left, &waiter] {
        session.lose(claim);
    }
    assert_eq!(events.try_recv(), Some(StoreEvent::Ended(lost.claim())));
    assert_eq!(events.try_recv(), None);
    assert!(lost.grant(token(8), Clock::Boot.now()).is_none(), "it is over");
    assert!(lost.leave() && lost.was_left() && !session.has_claims());
}

#[tokio::test]
async fn a_lapse_is_found_however_leases_change() {
    let (session, mut events) = session(LEASE);
    let (long, short) = (session.held(LEASE), session.held(LEASE));
    let (lapsed, next) = session.lapse(Clock::Boot.now());
    assert!(lapsed.is_empty() && next.is_some_and(|next| next <= LEASE));
    // The shortened lease ends before all known ones.
    let until = later(Duration::from_secs(1));
    let last = renewal(&short, Duration::from_secs(1)).as_last();
    assert_eq!(session.extend(&short, &last, until), Some(Mode::Exclusive));
    let (lapsed, next) = session.lapse(until);
    assert!(Arc::ptr_eq(&lapsed[0], &short) && next.is_some());
    assert_eq!(events.try_recv(), Some(StoreEvent::Ended(short.claim())));
    assert!(session.find(short.claim()).is_some(), "until it is deleted in the store");
    session.forget(&short);
    assert!(session.find(short.claim()).is_none() && !long.is_over());
    assert_eq!(session.extend(&short, &renewal(&short, LEASE), later(LEASE)), None);
}

#[tokio::test]
async fn only_the_last_renewal_shortens_a_lease() {
    let (session, _) = session(LEASE);
    let held = session.held(LEASE);
    let now = Clock::Boot.now();
    let renew = |lease, is_last| {
        let renewal = Renewal { is_last, ..renewal(&held, lease) };
        session.extend(&held, &renewal, now.saturating_add(lease)).expect("it is held");
        held.remaining(now)
    };
    let again = || {
        session.claim_of(&request(LEASE).with_claim(held.claim()), || unreachable!());
        drop(held.wait());
        held.grant(token(1), now);
        held.remaining(now)
    };
    let (long, short, shorter) = (LEASE * 9, LEASE / 2, LEASE / 4);
    assert_eq!([renew(long, false), renew(short, false)], [long; 2]);
    assert!(again() >= long);
    assert_eq!(renew(short, true), short);
    assert_eq!([again(), renew(long, false), renew(long, true)], [short; 3]);
    assert_eq!(renew(shorter, true), shorter);
}

#[tokio::test]
async fn a_renewal_extends_only_its_own_grant() {
    let (session, _) = session(LEASE);
    let (held, waiter) = (session.held(LEASE), session.claim(LEASE));
    let extend = |claim: &Arc<TestClaim>, of: Option<u64>| {
        let renewal = renewal(claim, LEASE * 9).with_token(of.map(token));
        session.extend(claim, &renewal, later(LEASE * 9))
    };
    for of in [6, 8] {
        assert_eq!(extend(&held, Some(of)), None);
        assert!(held.remaining(Clock::Boot.now()) <= LEASE);
    }
    assert_eq!(extend(&held, Some(7)), Some(Mode::Exclusive));
    assert_eq!(extend(&held, None), Some(Mode::Exclusive));
    assert_eq!([extend(&waiter, None), extend(&waiter, Some(7))], [None; 2]);
}

#[tokio::test]
async fn the_end_of_a_session_ends_its_claims() {
    let (session, mut events) = session(LEASE);
    let (held, waiter) = (session.held(LEASE), session.claim(LEASE));
    assert!(session.until_over().now_or_never().is_none());
    let granted = session.claims_where(|claim| claim.is_granted());
    assert!(granted.len() == 1 && Arc::ptr_eq(&granted[0], &held));
    let (over, gone) = tokio::join!(session.until_over(), async {
        session.end();
        waiter.until_over().await;
        held.is_over()
    });
    assert!(gone && session.is_over() && !session.has_claims(), "{over:?}");
    assert_eq!(events.try_recv(), Some(StoreEvent::Ended(held.claim())));
    assert_eq!(events.try_recv(), None);
}

#[tokio::test]
async fn a_claim_is_watched_if_it_is_held_for_a_while() {
    let (session, _) = session(LEASE);
    let (held, waiter) = (session.held(LEASE), session.claim(LEASE));
    drop(session.held(LEASE));
    assert!(session.take_matured(Clock::Boot.now()).is_empty());
    let matured = session.take_matured(later(Duration::from_secs(1)));
    assert_eq!(matured.len(), 2, "the session knows them");
    assert!(session.take_matured(later(LEASE)).is_empty());
    assert!(held.start_watch() && !held.start_watch() && !waiter.start_watch());
    assert!(held.was_granted() && !waiter.was_granted());
}

#[tokio::test]
async fn work_continues_without_its_caller() {
    let (session, _) = session(Duration::from_millis(1));
    let (done, go) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
    let window = Arc::new(Semaphore::new(1));
    let (finished, told) = (Arc::clone(&done), Arc::clone(&go));
    let work = async move {
        told.notified().await;
        finished.store(true, Ordering::SeqCst);
        Ok(())
    };
    let late = session.see_through_in(&window, None, work).await.unwrap_err();
    assert_eq!(late.certainty(), no_answer().certainty());
    // The work keeps its permit until it ends, and no other work begins.
    let next = session.see_through_in(&window, None, async { Ok(()) }).await.unwrap_err();
    assert_eq!(next.certainty(), Certainty::NotApplied);
    go.notify_one();
    drop(window.acquire().await);
    assert!(done.load(Ordering::SeqCst));
    assert!(session.see_through_in(&window, None, async { Ok(()) }).await.is_ok());
}

#[tokio::test]
async fn room_is_not_given_after_the_end() {
    let (session, _) = session(LEASE);
    let window = Arc::new(Semaphore::new(0));
    let (refused, ()) = tokio::join!(
        session.see_through_in(&window, None, pending::<Result<(), Error>>()),
        async { session.end() }
    );
    assert_eq!(refused.unwrap_err().certainty(), Certainty::NotApplied);
}

#[tokio::test]
async fn an_acquire_can_be_given_up_until_it_has_room() {
    let (session, _) = session(LEASE);
    let window = Arc::new(Semaphore::new(0));
    let room = Arc::clone(&window);
    let mut answer: Answer<()> = Answer::unsent(|flag| async move {
        session.see_through_in(&room, Some(&flag), pending::<Result<(), Error>>()).await
    });
    assert!((&mut answer).now_or_never().is_none() && answer.is_unsent());
    window.add_permits(1);
    assert!((&mut answer).now_or_never().is_none() && !answer.give_up());
}

/// A store with sessions that end when a test ends them.
#[derive(Clone, Default)]
struct TestStore {
    is_down: Arc<AtomicBool>,
    refuses_login: Arc<AtomicBool>,
    is_silent: Arc<AtomicBool>,
    /// The sessions that were opened, each with the remainder of the one before.
    opened: Arc<Mutex<Vec<Option<u32>>>>,
}

impl StoreSession for TestSession {
    type Claim = TestClaim;
    type Config = TestStore;
    type Remainder = u32;

    async fn open(
        store: &TestStore,
        events: StoreEventSender,
        runtime: Handle,
        remainder: Option<&u32>,
    ) -> Result<Arc<Self>, Error> {
        if store.is_down.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Unavailable, "the store is down"));
        }
        if store.refuses_login.load(Ordering::SeqCst) {
            return Err(Error::config(ConfigIssue::Access, "the password is wrong"));
        }
        if store.is_silent.load(Ordering::SeqCst) {
            pending::<()>().await;
        }
        store.opened.lock().push(remainder.copied());
        let response_timeout = Duration::from_millis(200);
        let base =
            SessionBase::new(Clock::Boot.now(), events, runtime, response_timeout, no_answer);
        Ok(Arc::new(Self(base)))
    }

    async fn serve(self: Arc<Self>) -> u32 {
        self.until_over().await;
        7
    }
}

/// Opens the first session of the store, and starts the task that serves all.
async fn sessions_of(store: &TestStore) -> Arc<Sessions<TestSession>> {
    let opened = Sessions::open("test:".to_owned(), store.clone(), current_runtime().unwrap());
    let sessions = Arc::new(opened.await.unwrap());
    sessions.start();
    sessions
}

#[tokio::test]
async fn a_caller_gets_the_next_session() {
    let store = TestStore::default();
    let sessions = sessions_of(&store).await;
    let first = sessions.living().await.unwrap();
    let held = first.held(LEASE);
    store.is_down.store(true, Ordering::SeqCst);
    first.end();
    assert!(held.is_over());
    let acquires = Arc::clone(&sessions);
    let mut acquire: Answer<()> =
        Answer::unsent(|flag| async move { acquires.living_for(&flag).await.map(drop) });
    assert!((&mut acquire).now_or_never().is_none() && !acquire.give_up(), "the cause is lost");
    for error in [acquire.await.err().unwrap(), sessions.living().await.err().unwrap()] {
        assert!(error.to_string().contains("the store is down"), "{error}");
    }
    assert!(Arc::ptr_eq(&first, &sessions.current()), "there is no other session");
    store.is_down.store(false, Ordering::SeqCst);
    until(|| !sessions.current().is_over()).await;
    assert!(!sessions.living().await.unwrap().has_claims());
    assert_eq!(*store.opened.lock(), [None, Some(7)]);
}

/// The store has accepted the first session, so the login may be accepted again.
#[tokio::test]
async fn a_login_that_is_refused_later_is_an_outage() {
    let store = TestStore::default();
    store.refuses_login.store(true, Ordering::SeqCst);
    let opened = Sessions::<TestSession>::open(
        "test:".to_owned(),
        store.clone(),
        current_runtime().unwrap(),
    );
    assert_eq!(opened.await.unwrap_err().kind(), ErrorKind::Config(ConfigIssue::Access));
    store.refuses_login.store(false, Ordering::SeqCst);
    let sessions = sessions_of(&store).await;
    store.refuses_login.store(true, Ordering::SeqCst);
    sessions.living().await.unwrap().end();
    let error = sessions.living().await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.to_string().contains("the password is wrong"), "{error}");
    store.refuses_login.store(false, Ordering::SeqCst);
    until(|| !sessions.current().is_over()).await;
}

#[tokio::test]
async fn a_store_that_never_answered_is_reported_as_such() {
    let store = TestStore::default();
    let sessions = sessions_of(&store).await;
    store.is_silent.store(true, Ordering::SeqCst);
    sessions.living().await.unwrap().end();
    let error = sessions.living().await.err().unwrap();
    assert_eq!(error.to_string(), no_answer().to_string());
}

#[test]
fn a_session_ends_with_the_runtime_that_serves_it() {
    // With one thread, the runtime ends before it has polled the task that serves the session.
    for mut builder in [Builder::new_multi_thread(), Builder::new_current_thread()] {
        let runtime = builder.enable_all().build().unwrap();
        let sessions = runtime.block_on(sessions_of(&TestStore::default()));
        let held = sessions.current().held(LEASE);
        runtime.shutdown_timeout(LEASE);
        assert!(sessions.current().is_over() && held.is_over());
    }
}

/// A store that refuses to delete keys while `refuses` is set.
struct Refusing {
    base: SessionBase<TestClaim>,
    refuses: AtomicBool,
    asked: Notify,
}

impl Deref for Refusing {
    type Target = SessionBase<TestClaim>;

    fn deref(&self) -> &SessionBase<TestClaim> {
        &self.base
    }
}

async fn remove(session: Arc<Refusing>, _: Arc<TestClaim>, _: Duration) -> bool {
    session.asked.notify_one();
    !session.refuses.load(Ordering::SeqCst)
}

/// Returns a session, and a released claim whose key the store refuses to delete.
fn refusing(lease: Duration) -> (Arc<Refusing>, Arc<TestClaim>) {
    let (TestSession(base), _) = session(LEASE);
    let (refuses, asked) = (AtomicBool::new(true), Notify::new());
    let session = Arc::new(Refusing { base, refuses, asked });
    let request = request(lease);
    let claim = session.claim_of(&request, || TestClaim(Life::new(&request, 4)));
    claim.leave();
    for _ in 0..2 {
        SessionBase::defer_deletion(&session, &claim, &"denied", remove);
    }
    (session, claim)
}

async fn until(mut check: impl FnMut() -> bool) {
    while !check() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_claim_is_kept_until_its_key_is_gone() {
    let (session, claim) = refusing(LEASE);
    for _ in 0..3 {
        session.asked.notified().await;
        assert!(session.find(claim.claim()).is_some());
    }
    session.refuses.store(false, Ordering::SeqCst);
    until(|| !session.has_claims()).await;
    assert!(!session.is_over());
    // The next session is served too.
    session.refuses.store(true, Ordering::SeqCst);
    let request = request(LEASE);
    let claim = session.claim_of(&request, || TestClaim(Life::new(&request, 4)));
    claim.leave();
    SessionBase::defer_deletion(&session, &claim, &"denied", remove);
    session.refuses.store(false, Ordering::SeqCst);
    until(|| !session.has_claims()).await;
}

#[tokio::test]
async fn a_session_ends_if_it_has_only_deferred_claims() {
    let (session, _) = refusing(Duration::ZERO);
    let (other, _) = refusing(Duration::ZERO);
    let request = request(LEASE);
    let held = other.claim_of(&request, || TestClaim(Life::new(&request, 4)));
    session.until_over().await;
    for _ in 0..3 {
        other.asked.notified().await;
    }
    assert!(!other.is_over(), "it has another claim");
    other.forget(&held);
    other.until_over().await;
    let late = session.claim_of(&request, || TestClaim(Life::new(&request, 4)));
    assert!(late.is_over(), "no claim enters a session that has ended");
}

#[tokio::test]
async fn deferred_claims_do_not_keep_a_session_alive() {
    let (session, _) = refusing(LEASE);
    session.asked.notified().await;
    let weak = Arc::downgrade(&session);
    drop(session);
    until(|| weak.strong_count() == 0).await;
}
