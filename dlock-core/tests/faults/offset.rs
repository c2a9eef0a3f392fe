//! Tokens with an offset in events.

use dlock_core::*;

use super::log::Log;

#[tokio::test(start_paused = true)]
async fn events_of_a_lock_have_the_token_of_its_guard() {
    let (log, _listening) = Log::new();
    let store = TokenOffset::new(Memory::with_clock(Clock::tokio()), 1 << 60).unwrap();
    let locks = Locks::new(Traced::new(store)).unwrap();
    let guard = locks.mutex("n").unwrap().lock().await.unwrap();
    assert!(guard.token().get() > 1 << 60);
    locks.force_release("n").await.unwrap();
    guard.lost().await;
    for event in ["lock force-released", "lock lost"] {
        assert_eq!(log.count(event), 1, "{log:?}");
    }
    assert_eq!(log.count(&format!(" token={}", guard.token())), 2, "{log:?}");
}
