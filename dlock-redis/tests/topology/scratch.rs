use dlock_core::{Acquired, Queue};
use dlock_testkit::servers::redis::{Options, RedisCluster};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use crate::help::*;

#[test]
fn desync() {
    with_redis(async {
        let cluster = RedisCluster::start(&Options::new()).await?;
        let backend = connect(&cluster.url()).await?;
        let other = connect(&cluster.url()).await?;
        // bucket with waiter
        let name = "moved";
        let slot = cluster.slot_of(&format!("{{{}}}", bucket(name))).await?;
        let from = cluster.master_of_slot(slot).await?;
        let to = cluster.nodes()[..3].iter().find(|n| n.port() != from.port()).unwrap();
        let held = ask(name, secs(60), Queue::Enqueue);
        take(&other, &held).await?;
        let waits = ask(name, secs(60), Queue::Enqueue);
        assert_eq!(backend.acquire(&waits).await?, Acquired::Queued);
        let mut names = vec![];
        for i in 0..10000 {
            let n = format!("n{i}");
            let s = cluster.slot_of(&format!("{{{}}}", bucket(&n))).await?;
            if s != slot && cluster.master_of_slot(s).await?.port() == from.port() {
                names.push(n);
            }
            if names.len() == 64 {
                break;
            }
        }
        let stop = Arc::new(AtomicBool::new(false));
        let done = Arc::new(AtomicU64::new(0));
        let mut jobs = vec![];
        for n in names {
            let (backend, stop, done) = (backend.clone(), stop.clone(), done.clone());
            jobs.push(beside(async move {
                let mut errors = vec![];
                while !stop.load(Ordering::Relaxed) {
                    let r = ask(&n, secs(60), Queue::Enqueue);
                    match backend.acquire(&r).await {
                        Ok(Acquired::Granted(_)) => {}
                        Ok(o) => errors.push(format!("{n} {o:?}")),
                        Err(e) => errors.push(format!("{n} {e}")),
                    }
                    match backend.release(&r.as_claim()).await {
                        Ok(dlock_core::Released::Released) => {}
                        Ok(o) => errors.push(format!("{n} {o:?}")),
                        Err(e) => errors.push(format!("{n} release {e}")),
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                    if errors.len() > 5 {
                        break;
                    }
                }
                errors
            }));
        }
        tokio::time::sleep(millis(300)).await;
        let mut raw = from.connect().await?;
        println!("{:?}", raw.command(&["PUBSUB", "SHARDCHANNELS"]).await?.texts()?.len());
        let ch = format!("test:{{{}}}", bucket(name));
        println!("{:?}", raw.command(&["SSUBSCRIBE", &ch]).await?);
        println!("done {}", done.load(Ordering::Relaxed));
        cluster.move_slot(slot, from, to).await?;
        println!("{:?}", tokio::time::timeout(millis(1000), raw.receive()).await);
        println!("moved {}", done.load(Ordering::Relaxed));
        tokio::time::sleep(millis(1000)).await;
        println!("done {}", done.load(Ordering::Relaxed));
        stop.store(true, Ordering::Relaxed);
        for (i, j) in jobs.into_iter().enumerate() {
            let e = within(secs(20), j).await??;
            if !e.is_empty() {
                println!("{i}: {e:#?}");
            }
        }
        Ok(())
    });
}
