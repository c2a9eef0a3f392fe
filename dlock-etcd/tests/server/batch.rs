//! Locks that one process uses at the same time.

use dlock_core::{Acquired, ConfigIssue, ErrorKind};
use dlock_testlab::etcd::{EtcdServer, Options};
use futures_util::future::{join_all, try_join_all};

use crate::{
    login::add_user,
    support::{connect, exclusive, free, granted, key_of, name, run, start, take},
};

const MANY: usize = 200;

#[test]
fn many_locks_share_requests() {
    run(async {
        let (server, client, _) = start().await?;
        let commits = async || server.metric("etcd_server_proposals_committed_total").await;
        let requests: Vec<_> = (0..MANY).map(|at| exclusive(&at.to_string())).collect();
        let before = commits().await?;
        try_join_all(requests.iter().map(|request| take(&client, request))).await?;
        assert_eq!(client.list("", MANY).await?.len(), MANY);
        try_join_all(requests.iter().map(|request| free(&client, request))).await?;
        assert_eq!(client.list("", MANY).await?, []);
        let all = commits().await? - before;
        assert!(all < f64::from(u32::try_from(MANY)?) / 2.0, "{all} commits");
        Ok(())
    });
}

/// Two claims with the same create revision would both be first.
#[test]
fn claims_of_one_lock_are_queued_one_after_the_other() {
    run(async {
        let (_server, client, _) = start().await?;
        let requests: Vec<_> = ["a", "b"].repeat(20).into_iter().map(exclusive).collect();
        let answers = try_join_all(requests.iter().map(|request| client.acquire(request))).await?;
        for lock in ["a", "b"] {
            let state = client.inspect(&name(lock)).await?;
            assert_eq!((state.holders.len(), state.waiters.len()), (1, 19), "{state:?}");
        }
        let is_granted = |answer: &&Acquired| matches!(answer, Acquired::Granted(_));
        assert_eq!(answers.iter().filter(is_granted).count(), 2);
        let mut last = None;
        for _ in 0..20 {
            let first = client.inspect(&name("a")).await?.holders[0].claim;
            let request = requests.iter().find(|request| request.claim == first);
            let request = request.ok_or("somebody else's claim")?;
            let token = granted(&client, request).await?.token;
            assert!(last < Some(token), "{last:?} and {token}");
            last = Some(token);
            free(&client, request).await?;
        }
        Ok(())
    });
}

/// If the server refuses one lock, the other locks of the same batch are not affected.
#[test]
fn a_refused_lock_does_not_affect_others() {
    run(async {
        let server = EtcdServer::start(&Options::new().with_root("secret")).await?;
        add_user(&server, "/app/%").await?;
        let more = ["role", "grant-permission", "app", "readwrite", "--prefix=true", "/app/may"];
        server.etcdctl(&more).await?;
        let address = server.address();
        let client = connect(&format!("etcd://app:secret@{address}/app")).await?;
        let requests: Vec<_> = (0..MANY).map(|at| exclusive(&format!("may{at}"))).collect();
        let refused = exclusive("other");
        let asked = requests[..MANY / 2].iter().chain([&refused]).chain(&requests[MANY / 2..]);
        let answers = join_all(asked.map(|request| client.acquire(request))).await;
        for (at, answer) in answers.into_iter().enumerate() {
            match answer {
                Ok(answer) => assert!(matches!(answer, Acquired::Granted(_)), "{at}: {answer:?}"),
                Err(error) => {
                    assert_eq!(at, MANY / 2, "{error}");
                    assert_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Access), "{error}");
                }
            }
        }
        Ok(())
    });
}

/// etcd keeps each key that was used, and passes it in each read of the queue, until it compacts.
#[test]
fn claims_that_follow_each_other_have_one_key() {
    run(async {
        let (server, client, other) = start().await?;
        let mut keys = Vec::new();
        for (client, waiting) in
            [(&client, false), (&client, false), (&client, true), (&other, true)]
        {
            let (held, next) = (exclusive("a"), exclusive("a"));
            take(client, &held).await?;
            if waiting {
                assert_eq!(client.acquire(&next).await?, Acquired::Queued);
                assert_ne!(key_of(&server, &held).await?, key_of(&server, &next).await?);
            }
            keys.push(key_of(&server, &held).await?);
            free(client, &held).await?;
            if waiting {
                granted(client, &next).await?;
                free(client, &next).await?;
            }
        }
        assert!(keys[0] == keys[1] && keys[1] == keys[2] && keys[2] != keys[3], "{keys:?}");
        Ok(())
    });
}
