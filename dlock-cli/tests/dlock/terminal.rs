//! Output on a terminal, which `script` of util-linux provides.

use std::{io::Write, process::Command, time::Duration};

use dlock_testlab::{Stop, judge};

use crate::support::{Dlock, HOLD, Running, with_signals};

/// Runs this command line with a terminal. Text that is written to its stdin is typed there.
fn on_terminal(dlock: &Dlock, line: &str) -> Result<Running, Stop> {
    let mut script = Command::new("script");
    if script.arg("--version").output().is_err() {
        return Err(Stop::missing("script is not installed: it is in util-linux"));
    }
    let mut script = with_signals("script");
    script
        .args(["-q", "-e", "-f", "-c", line, "/dev/null"])
        .env("DLOCK", env!("CARGO_BIN_EXE_dlock"))
        .env("DLOCK_URL", &dlock.url)
        .env("SHELL", "/bin/sh");
    Ok(Running::start(script))
}

/// Reads lines until one contains this text.
fn until_line(running: &mut Running, text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        let line = running.line();
        let found = line.contains(text);
        assert!(lines.len() < 100, "no {text:?} in {lines:?}");
        lines.push(line);
        if found {
            return lines;
        }
    }
}

#[test]
fn ctrl_c_reaches_the_command_once() {
    let tested = || {
        let dlock = Dlock::on_sqlite();
        let line = "exec \"$DLOCK\" run --name a -- sh -c 'trap \"echo got\" INT; echo held; n=0; \
                    while [ $n -lt 50 ]; do if read -r line; then echo \"on $line\"; n=0; \
                    [ \"$line\" != end ] || exit 0; else n=$((n+1)); fi; done'";
        let mut running = on_terminal(&dlock, line)?;
        until_line(&mut running, "held");
        // Two signals that arrive at the same time count as one, so a few are sent.
        for _ in 0..3 {
            running.stdin().write_all(b"\x03")?;
            until_line(&mut running, "got");
            std::thread::sleep(Duration::from_millis(300));
            running.stdin().write_all(b"1\n")?;
            let lines = until_line(&mut running, "on 1");
            assert!(!lines.iter().any(|line| line.contains("got")), "{lines:?}");
        }
        running.stdin().write_all(b"end\n")?;
        assert_eq!(running.ended().code, Some(0));
        Ok(())
    };
    judge("script", tested());
}

#[test]
fn break_shows_the_holder_and_requests_confirmation() {
    let tested = || {
        let dlock = Dlock::on_sqlite();
        let held = dlock.hold(&["--name", "a", "--lease", "10m"], HOLD);
        for (answer, code, free) in [("n\n", 1, false), ("\n", 1, false), ("y\n", 0, true)] {
            let mut running = on_terminal(&dlock, "exec \"$DLOCK\" break a")?;
            let lines = until_line(&mut running, "[y/N]");
            assert!(lines.iter().any(|line| line.starts_with("holds  exclusive")), "{lines:?}");
            running.stdin().write_all(answer.as_bytes())?;
            let went = running.ended();
            assert_eq!(went.code, Some(code), "{went:?}");
            assert_eq!(dlock.inspect("a")["free"], free, "{answer:?}");
        }
        assert_eq!(held.finish().code, Some(123));
        Ok(())
    };
    judge("script", tested());
}

#[test]
fn watch_draws_a_table() {
    let tested = || {
        let dlock = Dlock::on_sqlite();
        let line = "exec \"$DLOCK\" watch --name a --count 2 --interval 10ms";
        let went = on_terminal(&dlock, line)?.ended();
        assert_eq!(went.code, Some(0), "{went:?}");
        assert_eq!(went.out.matches("\u{1b}[2J").count(), 2, "{went:?}");
        let table = "\r\nLOCK  STATE  HOLDER  TOKEN  LEFT  WAITERS\r\n\
                     a     free   -       -      -     0\r\n";
        assert_eq!(went.out.matches(table).count(), 2, "{went:?}");
        Ok(())
    };
    judge("script", tested());
}

#[test]
fn an_empty_list_prints_a_message_only_on_a_terminal() {
    let tested = || {
        let dlock = Dlock::on_sqlite();
        let told = "no lock is held or waited for";
        let mut running = on_terminal(&dlock, "exec \"$DLOCK\" list")?;
        until_line(&mut running, told);
        assert_eq!(running.ended().code, Some(0));
        let went = dlock.went(&["list"]);
        assert_eq!((went.code, &*went.out, &*went.err), (Some(0), "", ""));
        Ok(())
    };
    judge("script", tested());
}
