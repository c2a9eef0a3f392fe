//! Faults that were found from outside, and their like.

#[cfg(feature = "blocking")]
mod blocking {
    use dlock::{ErrorKind, blocking::connect};

    #[test]
    fn blocking_work_that_outlived_its_lock_is_not_ok() {
        let locks = connect("memory:").unwrap();
        // The lease is long, so that nobody but the release learns of it.
        let taken = || {
            let by_force = locks.as_async().force_release("n");
            assert_eq!(locks.block_on(by_force).unwrap().unwrap().len(), 1);
            7
        };
        let lock = locks.mutex("n").unwrap();
        let with = lock.with(|_| taken());
        let guard = lock.lock().unwrap();
        for ran in [with, guard.finish(taken())] {
            let error = ran.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Lost);
            assert_eq!(error.take_output(), Some(7));
        }
    }
}
