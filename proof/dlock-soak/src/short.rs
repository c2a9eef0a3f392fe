//! Log lines in a short notation, for tests.
//!
//! ```text
//! HOLD ask TASK PHASE MODE NS NAME [KIND]
//! HOLD got NS TOKEN UNTIL
//! HOLD keep UNTIL
//! HOLD again|share|look|let NS
//! HOLD left|lost|not NS HOW [TEXT]
//! - late NS SINCE
//! - abort NS BELOW
//! - uses early|idle|end FDS TASKS THREADS
//! ```

use dlock_core::{FencingToken, Instant};

use super::line::{Line, What};

/// Returns the lines of one process.
pub(super) fn lines(process: usize, text: &str) -> Vec<Line> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| read(process, line)).collect()
}

fn read(process: usize, text: &str) -> Line {
    let words: Vec<&str> = text.splitn(8, ' ').collect();
    let hold = words[0].parse().ok();
    let at = |text: &str| Instant::from_nanos(text.parse().unwrap());
    let json = |text: &str| format!("\"{text}\"");
    let (at, what) = match words[1..] {
        ["ask", task, phase, mode, ns, name, ref kind @ ..] => {
            let ask = What::Ask {
                task: task.parse().unwrap(),
                kind: serde_json::from_str(&json(kind.first().unwrap_or(&"mutex"))).unwrap(),
                phase: phase.parse().unwrap(),
                mode: super::wire::mode::deserialize(serde_json::Value::from(mode)).unwrap(),
                name: name.to_owned(),
            };
            (at(ns), ask)
        }
        ["got", ns, token, until] => {
            let token = FencingToken::new(token.parse().unwrap()).unwrap();
            (at(ns), What::Got { token, until: at(until) })
        }
        ["keep", until] => (at("0"), What::Keep { until: at(until) }),
        ["again", ns] => (at(ns), What::Again {}),
        ["share", ns] => (at(ns), What::Share {}),
        ["look", ns] => (at(ns), What::Look {}),
        ["let", ns] => (at(ns), What::Let {}),
        ["left", ns, how] => (at(ns), What::Left { how: how.to_owned() }),
        ["lost", ns, how] => (at(ns), What::Lost { how: how.to_owned() }),
        ["not", ns, how, ref text @ ..] => {
            (at(ns), What::Not { how: how.to_owned(), text: text.join(" ") })
        }
        ["late", ns, since] => (at(ns), What::Late { since: at(since) }),
        ["abort", ns, below] => (at(ns), What::Abort { below: below.parse().unwrap() }),
        ["uses", when, fds, tasks, threads] => {
            let when = serde_json::from_str(&json(when)).unwrap();
            let number = |text: &str| text.parse().unwrap();
            let (fds, tasks, threads) = (number(fds), number(tasks), number(threads));
            (at("0"), What::Uses { when, fds, tasks, threads })
        }
        _ => panic!("no line: {text}"),
    };
    Line { process, hold, at, what }
}
