//! `connect` in every build: each mistake has its own error, before any I/O.

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use dlock::{
    ConnectOptions, Error, ErrorKind, LockName,
    backend::{BackendUrl, Factory, Memory, registry},
    connect, connect_with,
    error::ConfigIssue,
    guard::Released,
};

async fn refused(url: &str) -> Error {
    connect(url).await.expect_err("a wrong URL was taken")
}

#[tokio::test]
async fn memory_connects_and_locks() {
    let locks = connect("memory:").await.unwrap();
    let mutex = locks.mutex("inventory/42").unwrap();
    let guard = mutex.lock().await.unwrap();
    assert!(mutex.try_lock().await.unwrap().is_none());
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

#[tokio::test]
async fn spaces_and_line_ends_around_a_url_are_ignored() {
    for url in
        [" memory:?dlock.lease=5s", "memory:?dlock.lease=5s\n", "\tmemory:?dlock.lease=5s\r\n"]
    {
        let locks = connect(url).await.unwrap();
        assert_eq!(locks.options().lease(), Duration::from_secs(5), "{url:?}");
    }
}

#[tokio::test]
async fn each_mistake_has_its_own_error_that_names_the_remedy() {
    use ConfigIssue as Is;
    for (url, issue, remedy) in [
        ("locks.db", Is::Url, "scheme:address"),
        ("", Is::Url, "scheme:address"),
        ("consul://host", Is::UnknownScheme, "memory:"),
        ("memory:?dlock.leese=5s", Is::UnknownOption, "dlock.lease, dlock.wait, dlock.prefix"),
        ("memory:?dlock.lease=5s&dlock.lease=6s", Is::RepeatedOption, "is given twice in the URL"),
        ("memory:?dlock.lease=soon", Is::OptionValue, "such as 500ms"),
        ("memory:?dlock.lease=", Is::OptionValue, "such as 500ms"),
        ("memory:?dlock.wait=-1s", Is::OptionValue, "such as 500ms"),
        ("memory:?dlock.prefix=%ff", Is::OptionValue, "percent-encode"),
        ("memory:?dlock.lease=0s", Is::Lease, "100ms"),
        ("memory:?dlock.lease=1ns", Is::Lease, "100ms"),
        ("memory:?dlock.lease=25h", Is::Lease, "24h"),
        ("memory:?dlock.prefix=", Is::Name, "1 to 512"),
        ("memory:?dlock.prefix=a%00b", Is::Name, "control character"),
    ] {
        let error = refused(url).await;
        assert_eq!(error.kind(), ErrorKind::Config(issue), "{url}: {error}");
        assert!(error.to_string().contains(remedy), "{url}: {error}");
    }
}

#[tokio::test]
async fn a_missing_backend_is_reported_before_its_options() {
    let error = refused("consul://host?dlock.leese=5s&dlock.lease=soon").await;
    assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::UnknownScheme));
}

#[tokio::test]
async fn no_error_shows_a_secret() {
    for url in [
        "hunter2",
        "consul://user:hunter2@host/0?password=hunter2",
        "redis://:hunter2@host?dlock.lease=soon",
        "memory://user:hunter2@host?dlock.leese=1s&x=hunter2",
        "memory:?x=hunter2&dlock.lease=soon",
        "sqlite://user:hunter2@host/x.db?dlock.nope=1&password=hunter2",
    ] {
        let error = refused(url).await;
        let mut shown = format!("{error} {error:?}");
        let mut source = std::error::Error::source(&error);
        while let Some(inner) = source {
            shown += &format!("{inner} {inner:?}");
            source = inner.source();
        }
        assert!(!shown.contains("hunter2"), "{url}: {shown}");
    }
}

#[test]
fn without_a_runtime_connect_returns_an_error() {
    for url in ["memory:", "sqlite:/nowhere/at/all.db"] {
        let mut connecting = pin!(connect(url));
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(result) = connecting.as_mut().poll(&mut context) else {
            panic!("{url}: there is nothing to wait for");
        };
        let ErrorKind::Config(issue) = result.unwrap_err().kind() else { panic!("{url}") };
        let missing = !registry().schemes().contains(&"sqlite") && url.starts_with("sqlite");
        let expected = if missing { ConfigIssue::MissingFeature } else { ConfigIssue::Runtime };
        assert_eq!(issue, expected, "{url}");
    }
}

#[tokio::test]
async fn lease_and_wait_are_those_of_the_url() {
    let locks = connect("memory:?dlock.lease=7s&dlock.wait=50ms").await.unwrap();
    assert_eq!(locks.options().lease(), Duration::from_secs(7));
    let mutex = locks.mutex("a").unwrap();
    let guard = mutex.lock().await.unwrap();
    assert!(guard.remaining() <= Duration::from_secs(7));
    assert_eq!(mutex.lock().await.unwrap_err().kind(), ErrorKind::Timeout);

    let patient = connect("memory:").await.unwrap();
    assert_eq!(patient.options().lease(), Duration::from_secs(30));
    assert_eq!(patient.options().wait(), Duration::MAX);
}

/// A custom backend over a store that two connections share.
fn shared_memory() -> Factory {
    use std::sync::{Arc, OnceLock};
    static STORE: OnceLock<Arc<Memory>> = OnceLock::new();
    Factory::new("shared", &["shared"], &["color"], |mut url: BackendUrl| {
        Box::pin(async move {
            url.take("color");
            let store: Arc<Memory> = STORE.get_or_init(Memory::new).clone();
            Ok(store as dlock::backend::DynBackend)
        })
    })
}

#[tokio::test]
async fn a_note_is_on_every_claim() {
    async fn note(options: ConnectOptions) -> Option<String> {
        let locks = connect_with("memory:", options).await.unwrap();
        let _held = locks.mutex("a").unwrap().lock().await.unwrap();
        let state = locks.inspect("a").await.unwrap();
        state.holders[0].note.as_ref().map(ToString::to_string)
    }
    assert_eq!(note(ConnectOptions::new()).await, None);
    let noted = ConnectOptions::new().with_note("web-3 é").unwrap();
    assert_eq!(note(noted).await.as_deref(), Some("web-3 é"));
    let error = ConnectOptions::new().with_note("").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Note), "{error}");
    let error = refused("memory:?dlock.note=web-3").await;
    assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::UnknownOption), "{error}");
}

#[tokio::test]
async fn a_prefix_separates_applications_and_is_stored_in_the_name() {
    let backends = ConnectOptions::new().with_backend(shared_memory());
    let shop = connect_with("shared:?dlock.prefix=shop%2F", backends.clone()).await.unwrap();
    let bank = connect_with("shared:?dlock.prefix=bank%2F", backends.clone()).await.unwrap();
    let plain = connect_with("shared:", backends).await.unwrap();

    let held = shop.mutex("a").unwrap().lock().await.unwrap();
    assert_eq!(held.name().as_str(), "a");
    let other = bank.mutex("a").unwrap().try_lock().await.unwrap();
    assert!(other.is_some());
    assert!(plain.mutex("shop/a").unwrap().try_lock().await.unwrap().is_none());
    assert!(!plain.inspect("shop/a").await.unwrap().is_free());
}

#[tokio::test]
async fn a_prefix_leaves_too_little_room_for_a_long_name() {
    let url = format!("memory:?dlock.prefix={}", "p".repeat(LockName::MAX_BYTES));
    let refused = match connect(&url).await {
        Err(error) => error,
        Ok(locks) => match locks.mutex("a") {
            Err(error) => error,
            Ok(mutex) => mutex.lock().await.unwrap_err(),
        },
    };
    assert_eq!(refused.kind(), ErrorKind::Config(ConfigIssue::Name));
}

#[tokio::test]
async fn an_own_backend_takes_its_own_options_and_the_shared_ones() {
    let backends = ConnectOptions::new().with_backend(shared_memory());
    let url = "shared:?dlock.color=red&dlock.lease=9s";
    let locks = connect_with(url, backends.clone()).await.unwrap();
    assert_eq!(locks.options().lease(), Duration::from_secs(9));
    let error = connect_with("shared:?dlock.size=1", backends).await.unwrap_err();
    assert!(error.to_string().contains("dlock.color"), "{error}");
}
