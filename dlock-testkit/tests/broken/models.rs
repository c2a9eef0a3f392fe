//! Protocols as models, each without one of its rules.

use dlock_models::{
    check::{EXCLUSION, ORDER, WAKES},
    late_renewal, multi, quorum, zookeeper,
};

pub(crate) fn multi_with_two_kinds_of_steps() -> String {
    multi::without(multi::Rule::SameSteps, multi::NO_DEADLOCK)
}

pub(crate) fn quorum_without_write_back() -> String {
    quorum::without(quorum::Rule::WriteBack, ORDER)
}

pub(crate) fn quorum_of_half() -> String {
    quorum::without(quorum::Rule::Majority, EXCLUSION)
}

pub(crate) fn late_renewal_that_shortens() -> String {
    let (rule, property) = late_renewal::RULES[0];
    late_renewal::without(rule, property)
}

pub(crate) fn zookeeper_without_owner_check() -> String {
    zookeeper::without(zookeeper::Rule::OwnerCheck, EXCLUSION)
}

pub(crate) fn zookeeper_without_recheck() -> String {
    zookeeper::without(zookeeper::Rule::Recheck, WAKES)
}
