//! A master of a quorum that does not answer.

use dlock_core::{Guard, GuardState, LockOptions, Locks};
use dlock_testlab::{
    Stop,
    redis::{Options, RedisMasters},
};
use tokio::time::{Duration, sleep, timeout};

use crate::support::{SOON, connect, millis, run};

#[test]
fn one_silent_master_of_five_loses_no_short_lease() {
    run(async {
        let masters = RedisMasters::start(5, &Options::new()).await?;
        // An answer may take longer than the leases last.
        let url = format!("{}?dlock.restart_guard=0s&dlock.response_timeout=20s", masters.url());
        let client = connect(&url).await?;
        let hold = async |name: &str, lease: Duration| -> Result<Guard, Stop> {
            let options = LockOptions::new().with_lease(lease);
            let locks = Locks::new(client.clone())?.with_options(options)?;
            Ok(timeout(SOON, locks.mutex(name)?.lock()).await??)
        };
        let leases = [millis(3000), millis(4500), millis(9000)];
        let mut guards = Vec::new();
        for (lease, name) in leases.into_iter().zip(["a", "b", "c"]) {
            guards.push(hold(name, lease).await?);
        }
        let silent = &masters.servers()[3];
        silent.pause()?;
        for (lease, name) in leases.into_iter().zip(["d", "e", "f"]) {
            guards.push(hold(name, lease).await?);
        }
        for _ in 0..40 {
            sleep(millis(300)).await;
            for guard in &guards {
                assert_eq!(guard.state(), GuardState::Held, "{}", guard.name());
            }
        }
        silent.resume()?;
        for guard in guards {
            timeout(SOON, guard.release()).await??;
        }
        Ok(())
    });
}
