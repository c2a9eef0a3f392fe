//! All stores. A new one is a module with a [`Store`] and its servers, and a line here.

use crate::{
    etcd::EtcdStore,
    faults::{INJECTED, Kind},
    machine::MachineStore,
    plan::Plan,
    random::Rng,
    redis::{ClusterStore, QuorumStore, RedisStore, SentinelStore},
    sql::SqlStore,
    world::Store,
};

pub(crate) const STORES: [&dyn Store; 7] = [
    &RedisStore,
    &SentinelStore,
    &QuorumStore,
    &ClusterStore,
    &SqlStore,
    &EtcdStore,
    &MachineStore,
];

/// Returns the store with this name.
pub(crate) fn named(name: &str) -> Option<&'static dyn Store> {
    STORES.into_iter().find(|store| store.name() == name)
}

/// Draws the world of this seed, with this store or any.
pub(crate) fn draw(seed: u64, store: Option<&'static dyn Store>) -> (&'static dyn Store, Plan) {
    let store = store.unwrap_or_else(|| Rng::new(seed, "store").pick(&STORES));
    let possible = INJECTED.into_iter().filter(|kind| store.can_have(kind));
    let kinds: Vec<Kind> = possible.chain(store.own_faults().iter().copied()).collect();
    let mut plan = Plan::of(seed, &kinds, store.addresses().len());
    store.draw(&mut plan, &mut Rng::new(seed, store.name()));
    (store, plan)
}
