//! The commands in the guide and in other documents print the output that is shown there. They run
//! against a private Redis server.

use std::process::Command;

use dlock_testlab::{
    Stop, Verdict, judge,
    redis::{Options, RedisServer},
};
use dlock_tests::{code, console, root, shape, texts};

use crate::support::{Dlock, HOLD, Running, until};

/// The lock in the documents.
const LOCK: &str = "nightly-job";

/// The output for its holder and for its waiter in the documents.
const NOTE: &str = "web-3 pid 4711 report.sh";
const NEXT: &str = "web-4 pid 180 report.sh";

/// The scripts of the documents. Each prints the lock that it holds.
fn write_script(dlock: &Dlock, script: &str) -> Verdict {
    // In a separate process, since processes that are started here meanwhile would inherit the open
    // file.
    let text =
        "printf '#!/bin/sh\\necho \"$DLOCK_NAME $DLOCK_TOKEN\"\\n' >\"$1\" && chmod +x \"$1\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", text, "sh", script]).current_dir(dlock.directory.path());
    if shell.status()?.success() { Ok(()) } else { Err(Stop::failed(script)) }
}

/// The documented exit codes of commands that do not always exit with 0.
fn codes(words: &[&str]) -> &'static [i32] {
    match words {
        // Redis without persistence is usable, with warnings.
        ["doctor", rest @ ..] if rest.contains(&"--strict") => &[0, 1],
        // The command asks for confirmation, and there is no terminal here.
        ["break", rest @ ..] if !rest.contains(&"--yes") => &[125],
        _ => &[0],
    }
}

fn runs(dlock: &Dlock, printed: &str, words: &[&str]) -> Result<String, Stop> {
    for script in words.iter().filter(|word| word.starts_with("./")) {
        write_script(dlock, script)?;
    }
    let mut words = words.to_vec();
    if words.first() == Some(&"watch") {
        words.extend(["--count", "1"]);
    }
    let went = dlock.went(&words);
    if !went.code.is_some_and(|code| codes(&words).contains(&code)) {
        return Err(Stop::failed(format!("{printed}: {went:?}")));
    }
    if words.first() == Some(&"run") {
        let name = words.iter().skip_while(|word| **word != "--name").nth(1);
        let name = name.ok_or_else(|| format!("{printed}: names no lock"))?;
        let said = went.out.trim_end().strip_prefix(name).unwrap_or_default();
        said.trim().parse::<u64>().map_err(|_| format!("{printed}: {:?}", went.out))?;
    }
    Ok(went.out)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_command_acts_as_documented() {
    let tested = async {
        let server = RedisServer::start(&Options::new()).await?;
        let dlock = Dlock::on(server.url());
        let mut count = 0;
        for text in texts(root()) {
            for typed in console(&text.content) {
                let words: Vec<&str> = typed.command.split_whitespace().collect();
                let printed = format!("{}: {}", text.path, typed.command);
                match words.as_slice() {
                    ["dlock", words @ ..] => runs(&dlock, &printed, words).map(drop)?,
                    // All commands use the server of the test.
                    ["export", setting] => assert_eq!(*setting, "DLOCK_URL=redis://localhost"),
                    _ => continue,
                }
                count += 1;
            }
        }
        assert!(count > 10, "only {count} commands were found");
        Ok(())
    };
    judge("redis", tested.await);
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_as_documented() {
    let tested = async {
        let server = RedisServer::start(&Options::new()).await?;
        let dlock = Dlock::on(server.url());
        let held = dlock.hold(&["--name", LOCK, "--note", NOTE], HOLD);
        let waits =
            Running::start(dlock.command(&["run", "--name", LOCK, "--note", NEXT, "--", "true"]));
        let waiting =
            || dlock.inspect(LOCK)["waiters"].as_array().is_some_and(|all| all.len() == 1);
        until("one waits", waiting);
        let mut shown = 0;
        for text in texts(root()) {
            for typed in console(&text.content) {
                let words: Vec<&str> = typed.command.split_whitespace().collect();
                if let (["dlock", words @ ..], false) = (&*words, typed.prints.is_empty()) {
                    let out = runs(&dlock, &typed.command, words)?;
                    let shapes: Vec<_> = out.lines().map(shape).collect();
                    let expected: Vec<_> = typed.prints.iter().map(|line| shape(line)).collect();
                    assert_eq!(shapes, expected, "{}: {}", text.path, typed.command);
                }
            }
            let line = dlock.out(&["list"]);
            let of_lock = format!("{LOCK}: ");
            for shows in code(&text.content).iter().filter(|line| line.starts_with(&of_lock)) {
                assert_eq!(shape(line.trim_end()), shape(shows), "{}", text.path);
                shown += 1;
            }
        }
        assert!(shown > 1, "the texts show what is listed");
        assert_eq!(held.finish().code, Some(0));
        assert_eq!(waits.ended().code, Some(0));
        Ok(())
    };
    judge("redis", tested.await);
}
