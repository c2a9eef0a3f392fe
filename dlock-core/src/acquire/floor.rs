//! The token floor: for a resource that has seen larger tokens than the store remembers.

use std::sync::Arc;

use crate::{
    Certainty, Error, ErrorKind, FencingToken, Grant, LockName, LockOptions,
    engine::Engine,
    support::retry::{Trouble, Wait, explained, pause},
    sync::time::Instant as Timer,
};

/// Has the store give out tokens above the floor from now on, if the options name one. An
/// unreachable store is asked again for as long as an acquire would be.
pub(crate) async fn raise(
    engine: &Arc<Engine>,
    name: &LockName,
    options: LockOptions,
    wait: Wait,
    answer_by: Option<Timer>,
) -> Result<(), Error> {
    let Some(floor) = options.token_floor() else { return Ok(()) };
    let mut trouble = Trouble::default();
    loop {
        let raising = async {
            let raised = engine.while_open(engine.backend.raise_tokens(name, floor)).await;
            engine.failure.look_at(&raised);
            raised
        };
        let raised = engine.answered(answer_by, wait, name, raising).await;
        let Err(error) = raised else { return Ok(()) };
        let error = error.during("raise_tokens").with_lock(name);
        let error = error.with_store(engine.backend.store());
        let again = error.kind() == ErrorKind::Unavailable && !matches!(wait, Wait::Try);
        match trouble.pause(engine.clock.now(), options.lease()) {
            Some(next) if again => {
                let paused = engine.while_open(pause(next, wait.deadline(), name)).await;
                paused.map_err(|ended| explained(ended, Some(error), name))?;
            }
            _ => return Err(error),
        }
    }
}

/// Whether the options let this grant be handed out.
pub(crate) fn is_above(options: LockOptions, token: FencingToken) -> bool {
    options.token_floor().is_none_or(|floor| token > floor)
}

/// Refuses a grant that is not above the floor.
pub(crate) fn check(engine: &Engine, options: LockOptions, grant: &Grant) -> Result<(), Error> {
    match options.token_floor() {
        Some(floor) if grant.token <= floor => Err(Error::new(
            ErrorKind::Unavailable,
            format!(
                "the store was told to give out tokens above {floor}, and granted the lock with {}: \
                 it may have lost its data just now, so ask again, and see to the store if it \
                 stays so",
                grant.token
            ),
        )
        .with_certainty(Certainty::NotApplied)
        .during("acquire")
        .with_store(engine.backend.store())),
        _ => Ok(()),
    }
}
