//! Every kind of lock by the names that the facade re-exports, as an application writes them.

use std::time::Duration;

use dlock::{
    Error, ErrorKind, Guard, LockExt as _, LockOptions, Locks,
    backend::Memory,
    guard::{Released, Renew},
    kinds::{Lock, LockProvider, Owner},
};

#[tokio::test]
async fn an_application_can_hold_a_provider_and_know_no_backend() {
    /// The code of an application.
    #[derive(Debug)]
    struct Shop {
        locks: Box<dyn LockProvider>,
    }

    impl Shop {
        async fn sell(&self, item: &str) -> Result<u64, Error> {
            self.locks.mutex(item)?.with(|token| async move { token.get() }).await
        }
    }

    let shop = Shop { locks: Box::new(dlock::connect("memory:").await.unwrap()) };
    let first = shop.sell("inventory/42").await.unwrap();
    assert!(shop.sell("inventory/42").await.unwrap() > first);
}

#[tokio::test]
async fn every_kind_is_taken_and_released() {
    let locks = Locks::new(Memory::new()).unwrap();
    let owner = Owner::new();
    let guards: [Guard; 7] = [
        locks.mutex("mutex").unwrap().lock().await.unwrap(),
        locks.fair("fair").unwrap().lock().await.unwrap(),
        locks.reentrant("reentrant").unwrap().lock_as(&owner).await.unwrap(),
        locks.rw("read").unwrap().read().lock().await.unwrap(),
        locks.rw("write").unwrap().write().lock().await.unwrap(),
        locks.semaphore("semaphore", 5).unwrap().acquire_many(3).await.unwrap(),
        locks.multi(["one", "two"]).unwrap().lock().await.unwrap(),
    ];
    for guard in guards {
        guard.check().unwrap();
        assert_eq!(guard.release().await.unwrap(), Released::Released);
    }
    locks.shutdown(Duration::from_secs(1)).await.unwrap();
}

#[tokio::test]
async fn options_are_of_a_view_and_not_of_the_connection() {
    let locks = Locks::new(Memory::new()).unwrap();
    let short = LockOptions::new()
        .with_lease(Duration::from_millis(100))
        .with_renew(Renew::Never)
        .with_wait(Duration::ZERO);
    let brief = locks.with_options(short).unwrap();
    let guard = brief.mutex("a").unwrap().lock().await.unwrap();
    assert_eq!(
        brief.mutex("a").unwrap().lock().await.unwrap_err().kind(),
        ErrorKind::Timeout,
        "one attempt"
    );
    guard.lost().await;
    assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::Lost);

    let patient = locks.mutex("a").unwrap();
    let dynamic: &dyn Lock = &patient;
    dynamic.lock().await.unwrap().release().await.unwrap();
}
