//! The node to which a command is sent in a cluster.
//!
//! `MOVED` means that the slot has another master from now on. `ASK` means that the slot is moving,
//! and that this command alone goes to the other node, right behind `ASKING`.

use std::sync::Arc;

use redis::{Arg, Cmd, Pipeline, RedisError, ServerErrorKind};

use super::map::address;

/// The node to which a command goes.
pub(crate) struct Route {
    pub(crate) at: Arc<str>,
    /// The slot is moving to this node.
    pub(crate) asking: bool,
}

impl Route {
    /// Returns the node to which this error redirects the command.
    pub(crate) fn next(&self, error: &RedisError) -> Option<Self> {
        let (at, _) = error.redirect_node()?;
        let asking = error.kind() == redis::ErrorKind::Server(ServerErrorKind::Ask);
        Some(Self { at: address(at, &self.at)?.into(), asking })
    }
}

/// Returns the number of the bucket of a command, which is in the braces of its first key.
pub(crate) fn bucket_of(command: &Cmd) -> Option<usize> {
    command.args_iter().find_map(|argument| {
        let Arg::Simple(text) = argument else { return None };
        let number = text.strip_prefix(b"dlock:{")?.split(|byte| *byte == b'}').next()?;
        std::str::from_utf8(number).ok()?.parse().ok()
    })
}

/// Returns the commands for a node to which a slot is moving. They are one pipeline, so that no
/// other command of this connection comes between them.
pub(crate) fn asking(commands: &Pipeline) -> Pipeline {
    let mut asking = redis::pipe();
    asking.cmd("ASKING").ignore_errors();
    for command in commands.cmd_iter() {
        asking.add_command(command.clone());
    }
    asking
}

/// Returns the error for keys whose master is not known.
pub(crate) fn no_master() -> RedisError {
    let kind = redis::ErrorKind::Server(ServerErrorKind::ClusterDown);
    RedisError::from((kind, "no master has the slot"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_goes_to_the_node_of_its_first_key() {
        let mut command = redis::cmd("EVALSHA");
        command
            .arg("digest")
            .arg(2)
            .arg("dlock:{17}:a{3}")
            .arg("dlock:{17}f:a{3}")
            .arg("dlock:i:x");
        assert_eq!(bucket_of(&command), Some(17));
        assert_eq!(bucket_of(redis::cmd("WAIT").arg(1).arg(100)), None);
    }

    #[test]
    fn redirections_are_followed() {
        let route = Route { at: "a:1".into(), asking: false };
        let error = |text: &str| {
            redis::parse_redis_value(text.as_bytes()).unwrap().extract_error().unwrap_err()
        };
        for (text, next) in [
            ("-MOVED 17 b:2\r\n", Some(("b:2", false))),
            ("-MOVED 17 :2\r\n", Some(("a:2", false))),
            ("-ASK 17 fe80::1:2\r\n", Some(("[fe80::1]:2", true))),
            ("-TRYAGAIN Multiple keys request during rehashing of slot\r\n", None),
        ] {
            let found = route.next(&error(text));
            assert_eq!(found.as_ref().map(|route| (&*route.at, route.asking)), next, "{text}");
        }
    }
}
