use super::*;
use crate::node::child;

/// Children of these modes, in order, with their names.
fn children(modes: &[Mode]) -> Vec<String> {
    let name = |(at, mode): (usize, &Mode)| format!("{}{at:010}", child(ClaimId::random(), *mode));
    modes.iter().enumerate().map(name).collect()
}

fn standings(modes: &[Mode]) -> (Vec<String>, Vec<Standing>) {
    let children = children(modes);
    let mut shuffled = children.clone();
    shuffled.reverse();
    let queue = Queue::of(shuffled);
    assert!(queue.in_order());
    let standings = children.iter().map(|child| queue.standing(child)).collect();
    (children, standings)
}

fn is_held(standing: &Standing) -> bool {
    matches!(standing, Standing::Held { .. })
}

const ALONE: Mode = Mode::Exclusive;
const READ: Mode = Mode::Shared;

const fn permits(n: u32) -> Mode {
    Mode::Permits { n, of: 3 }
}

#[test]
fn an_exclusive_claim_watches_its_predecessor() {
    let (names, seen) = standings(&[ALONE, ALONE, READ, ALONE]);
    assert_eq!(seen[0], Standing::Held { followed: true });
    assert_eq!(seen[1], Standing::Behind(Watch::Last(names[0].clone())));
    assert_eq!(seen[3], Standing::Behind(Watch::Child(names[2].clone())));
}

#[test]
fn a_reader_watches_the_last_writer_before() {
    let (names, seen) = standings(&[READ, READ, ALONE, READ, ALONE, READ]);
    assert!(seen[..2].iter().all(is_held));
    assert_eq!(seen[3], Standing::Behind(Watch::Child(names[2].clone())));
    assert_eq!(seen[5], Standing::Behind(Watch::Child(names[4].clone())));
}

#[test]
fn a_reader_behind_the_first_writer_looks_whether_it_reads() {
    let (names, seen) = standings(&[ALONE, READ, READ]);
    assert_eq!(seen[1], Standing::Behind(Watch::Writer(names[0].clone())));
    assert_eq!(seen[2], Standing::Behind(Watch::Writer(names[0].clone())));
}

#[test]
fn permits_are_counted_and_the_next_in_line_watches_all() {
    let (names, seen) = standings(&[permits(1), permits(2), permits(2), permits(1)]);
    assert!(seen[..2].iter().all(is_held));
    assert_eq!(seen[2], Standing::Behind(Watch::Children));
    assert_eq!(seen[3], Standing::Behind(Watch::Waiter(names[2].clone())));
}

#[test]
fn another_capacity_before_is_a_conflict() {
    let (_, seen) = standings(&[permits(1), ALONE, permits(1)]);
    assert_eq!(seen[1], Standing::Conflict(3));
    assert!(matches!(seen[2], Standing::Conflict(_)));
}

#[test]
fn an_unlisted_claim_is_gone() {
    let queue = Queue::of(["foreign"]);
    assert!(queue.nodes().is_empty());
    assert_eq!(queue.standing("foreign"), Standing::Gone);
}

#[test]
fn age_decides_after_numbers_overflow() {
    let (old, young) = (ClaimId::random(), ClaimId::random());
    let names =
        [format!("{}-2147483648", child(young, ALONE)), format!("{}2147483647", child(old, ALONE))];
    let queue = Queue::of(&names);
    assert!(!queue.in_order());
    let age = |node: &Node| if node.claim == old { 5 } else { 9 };
    let aged = queue.nodes().iter().map(|node| (age(node), node.clone()));
    let queue = Queue::by_age(aged.collect());
    assert_eq!(queue.standing(&names[1]), Standing::Held { followed: true });
    assert_eq!(queue.standing(&names[0]), Standing::Behind(Watch::Last(names[1].clone())));
}

mod against_the_machine {
    use dlock_core::{
        LockState, Queue as Wait,
        machine::{Machine, Op},
    };
    use proptest::prelude::*;

    use super::*;

    fn modes() -> impl Strategy<Value = Vec<Mode>> {
        let plain = prop_oneof![Just(ALONE), Just(READ)];
        let counted = (1u32..=3).prop_map(permits);
        prop_oneof![prop::collection::vec(plain, 1..8), prop::collection::vec(counted, 1..8),]
    }

    /// Returns the machine's state after these claims arrived one by one.
    fn machine(claims: &[(ClaimId, Mode)]) -> LockState {
        let mut machine = Machine::default();
        for (claim, mode) in claims {
            let op = Op::Acquire {
                claim: *claim,
                mode: *mode,
                lease: 1_000_000,
                block: 1,
                queue: Wait::Enqueue,
                home: 0,
                note: None,
            };
            let _ = machine.apply(&op, 1, &mut Vec::new());
        }
        machine.inspect(1)
    }

    proptest! {
        #[test]
        fn the_same_hold_the_lock(modes in modes()) {
            let claims: Vec<_> = modes.iter().map(|mode| (ClaimId::random(), *mode)).collect();
            let state = machine(&claims);
            let names: Vec<_> = claims
                .iter()
                .enumerate()
                .map(|(at, (claim, mode))| format!("{}{at:010}", child(*claim, *mode)))
                .collect();
            let queue = Queue::of(&names);
            for (name, (claim, _)) in names.iter().zip(&claims) {
                let held = state.holders.iter().any(|holder| holder.claim == *claim);
                prop_assert_eq!(is_held(&queue.standing(name)), held);
            }
            prop_assert_eq!(Queue::holding(modes), state.holders.len());
        }

        /// A waiter can't be granted while the node that it watches stays unchanged.
        #[test]
        fn a_watched_node_blocks_its_waiter(modes in modes(), gone in prop::collection::vec(any::<bool>(), 8)) {
            let (names, before) = standings(&modes);
            for (at, standing) in before.iter().enumerate() {
                let Standing::Behind(watch) = standing else { continue };
                let watched = match watch {
                    Watch::Last(child) | Watch::Child(child) | Watch::Writer(child) => child,
                    // Woken by the deletion of any of them, or by the waiter's mark.
                    Watch::Waiter(_) | Watch::Children => continue,
                };
                let left: Vec<_> = names
                    .iter()
                    .zip(&gone)
                    .enumerate()
                    .filter(|(i, (name, gone))| *i >= at || *name == watched || !**gone)
                    .map(|(_, (name, _))| name)
                    .collect();
                let queue = Queue::of(left);
                prop_assert!(!is_held(&queue.standing(&names[at])));
            }
        }
    }
}
