//! The optional part of the contract, and a backend without it.

use std::sync::Arc;

use crate::health::Silent;
use dlock_core::*;

fn without() -> DynBackend {
    Arc::new(Silent(Memory::new()))
}

#[tokio::test]
async fn a_backend_without_it_lists_and_raises_nothing() {
    let wrapped: [DynBackend; 4] = [
        without(),
        Prefixed::new(without(), "p/").unwrap(),
        Traced::new(without()),
        TokenOffset::new(without(), 7).unwrap(),
    ];
    for backend in wrapped {
        let locks = Locks::new(backend).unwrap();
        let error = locks.list("", 1).await.unwrap_err();
        assert_eq!((error.kind(), error.operation()), (ErrorKind::Unsupported, Some("list")));
        assert!(error.to_string().contains("inspect"), "{error}");
        let above = FencingToken::new(70).unwrap();
        let error = locks.raise_tokens("n", above).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert_eq!(error.lock().map(LockName::as_str), Some("n"));
        assert!(error.to_string().contains("dlock.token_offset"), "{error}");
        // There are no findings.
        let findings = locks.examine().await.unwrap();
        assert!(findings.iter().all(|finding| finding.about == "token offset"), "{findings:?}");
        // Locks do not need the optional part.
        locks.mutex("n").unwrap().lock().await.unwrap().release().await.unwrap();
    }
}

#[test]
fn wrappers_forward_it() {
    let wrap = |inner: fn() -> DynBackend| -> [DynBackend; 2] {
        [Prefixed::new(inner(), "p/").unwrap(), Traced::new(inner())]
    };
    assert!(wrap(without).iter().all(|backend| backend.admin().is_none()));
    assert!(wrap(|| Memory::new()).iter().all(|backend| backend.admin().is_some()));
}
