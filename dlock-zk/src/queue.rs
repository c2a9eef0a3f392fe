//! The rule of a lock, read from the names in its directory.
//!
//! The queue is the order of the nodes. Its longest prefix whose weights together fit holds the
//! lock. That is the rule of `dlock_core::machine`, but here the result is not stored: each client
//! computes it. A claim depends only on the nodes before it. Servers apply changes in one order. So
//! a list with a node has every earlier node that still exists, and perhaps some that were deleted.
//!
//! A waiting claim watches one node. It is chosen so that the claim can't be granted while that
//! node stays unchanged:
//!
//! | waiter | waits for | watches |
//! |---|---|---|
//! | mutex or writer | all before it | the last of them |
//! | reader | writers | the last writer before it |
//! | permits, next in line | any holder | the directory's children |
//! | permits, further back | the waiter before it | that waiter, whose node is marked when it is granted |

use std::ops::RangeInclusive;

use dlock_core::{ClaimId, Mode};

use crate::node::{self, Node};

/// The numbers that are certainly in order. Beyond them the server's counter is about to overflow,
/// or has: it then repeats its last number, or continues below zero.
pub(crate) const IN_ORDER: RangeInclusive<i64> = 0..=2_000_000_000;

/// The claims of a lock, in their order. It is parsed once from a list, however many callers share
/// that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Queue {
    nodes: Vec<Node>,
    in_order: bool,
    /// The number and the format of the first node whose format this version does not read.
    newer: Option<(i64, u64)>,
}

/// The state of a claim, according to a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It holds the lock.
    Held {
        /// There are claims behind it.
        followed: bool,
    },
    /// It waits.
    Behind(Watch),
    /// The lock is in use with another capacity.
    Conflict(u32),
    /// Its node does not exist.
    Gone,
    /// It is unknown, since a node before it has this format, which this version does not read.
    Unread(u64),
}

/// The node to watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    /// This child is the only one before the claim. When it is deleted, the claim holds the lock.
    Last(String),
    /// This child blocks the claim.
    Child(String),
    /// The first in the queue, a writer that may have become a reader.
    Writer(String),
    /// The waiter before it, which is marked when it is granted.
    Waiter(String),
    /// The children of the directory.
    Children,
}

impl Queue {
    /// Returns the claims among these children, by their numbers.
    pub(crate) fn of(children: impl IntoIterator<Item = impl AsRef<str> + Into<String>>) -> Self {
        let (mut nodes, mut newer) = (Vec::new(), None);
        for child in children {
            let found = node::newer(child.as_ref());
            newer = newer.into_iter().chain(found).min();
            nodes.extend(Node::parse(child));
        }
        nodes.sort_by_key(|node| node.number);
        let in_order = nodes.iter().all(|node| IN_ORDER.contains(&node.number));
        Self { nodes, in_order, newer }
    }

    /// Returns the claims with these zxids, by age.
    pub(crate) fn by_age(aged: Vec<(i64, Node)>) -> Self {
        let mut aged = aged;
        aged.sort_by_key(|(czxid, node)| node.since.unwrap_or(*czxid));
        let nodes = aged.into_iter().map(|(_, node)| node).collect();
        Self { nodes, in_order: true, newer: None }
    }

    /// Returns the unknown format of a node before this child, or of any node.
    pub(crate) fn newer_before(&self, child: Option<&str>) -> Option<u64> {
        let (first, format) = self.newer?;
        let Some(child) = child else { return Some(format) };
        let own = self.nodes.iter().find(|node| node.child == child)?;
        (first < own.number || !self.in_order).then_some(format)
    }

    /// Returns whether the numbers give the order. If not, the caller makes the queue [by
    /// age](Self::by_age).
    pub(crate) fn in_order(&self) -> bool {
        self.in_order
    }

    /// Returns the claims in their order.
    pub(crate) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the nodes of one claim.
    pub(crate) fn of_claim(&self, claim: ClaimId) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(move |node| node.claim == claim)
    }

    /// Returns the state of the claim of this child.
    pub(crate) fn standing(&self, child: &str) -> Standing {
        let Some(at) = self.nodes.iter().position(|node| node.child == child) else {
            return Standing::Gone;
        };
        let (ahead, mode) = (&self.nodes[..at], self.nodes[at].mode);
        let odd = ahead.iter().find(|node| node.mode.capacity() != mode.capacity());
        if let Some(odd) = odd {
            return Standing::Conflict(odd.mode.capacity());
        }
        let watch = match mode {
            Mode::Shared => {
                let writer = ahead.iter().rposition(|node| node.mode == Mode::Exclusive);
                writer.map(|at| match at {
                    0 => Watch::Writer(ahead[0].child.clone()),
                    at => Watch::Child(ahead[at].child.clone()),
                })
            }
            Mode::Permits { n, of } => first_waiter(ahead, n, of).map(|first| match first {
                first if first == at => Watch::Children,
                _ => Watch::Waiter(ahead[at - 1].child.clone()),
            }),
            _ => ahead.last().map(|last| match at {
                1 => Watch::Last(last.child.clone()),
                _ => Watch::Child(last.child.clone()),
            }),
        };
        let held = Standing::Held { followed: at + 1 < self.nodes.len() };
        watch.map_or(held, Standing::Behind)
    }

    /// Returns the length of the longest prefix of these modes that fits.
    pub(crate) fn holding(modes: impl IntoIterator<Item = Mode>) -> usize {
        let mut taken = 0;
        modes
            .into_iter()
            .take_while(|mode| {
                taken += u64::from(mode.weight());
                taken <= u64::from(mode.capacity())
            })
            .count()
    }
}

/// Returns the index of the first waiting claim. `None` if the claim behind `ahead` does not wait.
fn first_waiter(ahead: &[Node], n: u32, of: u32) -> Option<usize> {
    let mine = Mode::Permits { n, of };
    let held = Queue::holding(ahead.iter().map(|node| node.mode).chain([mine]));
    (held <= ahead.len()).then_some(held)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::child;

    /// Children of these modes, in order, with their names.
    fn children(modes: &[Mode]) -> Vec<String> {
        let name =
            |(at, mode): (usize, &Mode)| format!("{}{at:010}", child(ClaimId::random(), *mode));
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
        let names = [
            format!("{}-2147483648", child(young, ALONE)),
            format!("{}2147483647", child(old, ALONE)),
        ];
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
}
