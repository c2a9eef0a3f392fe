//! Tasks and processes that hand a lock off.

use super::{
    check,
    world::{Answers, World},
};

#[test]
fn a_lock_goes_round_the_process() {
    check(|| within_a_process(Answers::AtOnce));
    check(|| within_a_process(Answers::Later));
}

#[test]
fn a_lock_goes_round_two_processes() {
    check(|| between_processes(Answers::AtOnce));
    check(|| between_processes(Answers::Later));
}

pub(super) async fn within_a_process(answers: Answers) {
    let world = World::new(answers);
    world.warm().await;
    let tasks = [world.worker(2), world.worker(2), world.worker(1)];
    for task in tasks {
        task.await.unwrap();
    }
    world.is_over(0).await;
}

pub(super) async fn between_processes(answers: Answers) {
    let world = World::new(answers);
    let other = world.another();
    let tasks = [world.worker(2), world.worker(1), other.worker(2)];
    for task in tasks {
        task.await.unwrap();
    }
    other.is_quiet().await;
    world.is_over(0).await;
}
