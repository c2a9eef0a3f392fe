//! A counter that Java threads and clients of dlock raise together: none of it is lost.

use std::path::Path;

use dlock_core::Locks;
use dlock_testlab::{Stop, Verdict, zookeeper::JavaProgram};
use futures_util::future::try_join_all;
use tokio::task::yield_now;

use crate::support::{connect, run, server, url};

const COUNT: &str = include_str!("java/Count.java");

/// How many threads the Java process has, how many tasks each client, and how often each counts.
const THREADS: usize = 4;
const TASKS: usize = 3;
const TIMES: usize = 20;

/// Reads and writes with a pause in between, which only a lone holder may do.
async fn count(file: &Path) -> Verdict {
    let value: u64 = std::fs::read_to_string(file)?.parse()?;
    yield_now().await;
    std::fs::write(file, (value + 1).to_string())?;
    Ok(())
}

#[test]
fn java_threads_and_two_clients_count_exactly() {
    run(async {
        let server = server().await?;
        let file = server.directory().join("counter");
        std::fs::write(&file, "0")?;
        let path = file.display().to_string();
        let (threads, times) = (THREADS.to_string(), TIMES.to_string());
        let args = [&server.address(), "/dlock/a", &path, &threads, &times];
        let mut java = JavaProgram::start(COUNT, &args).await?;
        assert_eq!(java.line().await?, "ready");
        let clients = [connect(&url(&server)).await?, connect(&url(&server)).await?];
        java.say("go").await?;
        let counting = (0..TASKS * clients.len()).map(async |task| {
            let locks = Locks::new(clients[task % clients.len()].clone())?;
            for _ in 0..TIMES {
                let guard = locks.mutex("a")?.lock().await?;
                count(&file).await?;
                guard.release().await?;
            }
            Ok::<_, Stop>(())
        });
        let (ended, counted) = tokio::join!(java.finish(), try_join_all(counting));
        counted?;
        assert_eq!(ended?, "counted\n");
        let expected = (THREADS + TASKS * clients.len()) * TIMES;
        assert_eq!(std::fs::read_to_string(&file)?, expected.to_string());
        Ok(())
    })
}
