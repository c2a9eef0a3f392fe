//! Two protocols as models, without one of their rules: those of the target `models`.

#[path = "../models/check.rs"]
#[allow(dead_code, unused_imports, reason = "the target `models` uses the rest")]
mod check;
#[path = "../models/quorum/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the target `models` uses the rest")]
mod quorum;
#[path = "../models/zookeeper/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the target `models` uses the rest")]
mod zookeeper;

use check::{EXCLUSION, ORDER, WAKES};

pub(crate) fn quorum_without_write_back() -> String {
    quorum::without(quorum::Rule::WriteBack, ORDER)
}

pub(crate) fn quorum_of_half() -> String {
    quorum::without(quorum::Rule::Majority, EXCLUSION)
}

pub(crate) fn zookeeper_without_owner_check() -> String {
    zookeeper::without(zookeeper::Rule::OwnerCheck, EXCLUSION)
}

pub(crate) fn zookeeper_without_recheck() -> String {
    zookeeper::without(zookeeper::Rule::Recheck, WAKES)
}
