//! Recorded commands of clients, which are sent again as late duplicates.

use dlock_testlab::{
    Stop,
    redis::{RedisServer, Reply, Resp},
};
use tokio::time::timeout;

use crate::support::millis;

/// The commands that a server has executed for its clients since the recording started.
pub(crate) struct Recording {
    monitor: Resp,
    commands: Vec<Vec<String>>,
}

impl Recording {
    pub(crate) async fn start(server: &RedisServer) -> Result<Self, Stop> {
        let mut monitor = server.connect().await?;
        monitor.command(&["MONITOR"]).await?.ok()?;
        Ok(Self { monitor, commands: Vec::new() })
    }

    /// Returns the recorded commands that contain this word.
    pub(crate) async fn with(&mut self, word: &str) -> Result<Vec<Vec<String>>, Stop> {
        self.that(|part| part == word).await
    }

    /// Returns the recorded commands with a word that begins so.
    pub(crate) async fn about(&mut self, begin: &str) -> Result<Vec<Vec<String>>, Stop> {
        self.that(|part| part.starts_with(begin)).await
    }

    async fn that(&mut self, is_it: impl Fn(&str) -> bool) -> Result<Vec<Vec<String>>, Stop> {
        while let Ok(line) = timeout(millis(100), self.monitor.receive()).await {
            self.commands.extend(read(&line?.text()?));
        }
        let holds = |command: &&Vec<String>| command.iter().any(|part| is_it(part));
        Ok(self.commands.iter().filter(holds).cloned().collect())
    }
}

/// Sends the command again.
pub(crate) async fn replay(server: &RedisServer, command: &[String]) -> Result<Reply, Stop> {
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    server.command(&words).await
}

/// Parses a line such as `1700000000.1 [0 127.0.0.1:1] "SET" "a" "1"`. Lines of commands inside
/// scripts are ignored.
fn read(line: &str) -> Option<Vec<String>> {
    let (head, words) = line.split_once("] ")?;
    if head.ends_with("lua") {
        return None;
    }
    let mut read = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = words.chars();
    while let Some(letter) = letters.next() {
        match (letter, &mut word) {
            ('"', Some(_)) => read.extend(word.take()),
            ('"', None) => word = Some(String::new()),
            ('\\', Some(word)) => word.push(match letters.next()? {
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                other => other,
            }),
            (letter, Some(word)) => word.push(letter),
            (_, None) => {}
        }
    }
    Some(read)
}

#[test]
fn a_recorded_command_equals_the_sent_one() {
    let line = r#"1.5 [3 127.0.0.1:77] "EVAL" "a\n\"b\\" "" "x y""#;
    assert_eq!(read(line).unwrap(), ["EVAL", "a\n\"b\\", "", "x y"]);
    assert!(read(r#"1.5 [0 lua] "GET" "a""#).is_none());
}
