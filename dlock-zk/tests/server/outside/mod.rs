//! Servers and settings that our own tests never had: found by others.

mod acl;
mod counter;
mod crowd;
mod late;
mod lease;
mod local;
mod voter;

use std::time::Duration;

use dlock_testlab::zookeeper::{Ensemble, Options};

fn url_of(ensemble: &Ensemble) -> String {
    format!("zk://{}?dlock.session_timeout=15s", ensemble.connect_string())
}

/// No server looks for empty containers meanwhile.
fn lazy() -> Options {
    Options::new().with_container_checks_every(Duration::from_secs(3600))
}
