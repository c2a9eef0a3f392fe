//! **Leaks**: when all locks are released, a process has no more open than shortly after its start.

use std::collections::BTreeMap;

use super::line::{Line, What, When};

/// The tolerated increase: connections and threads that are opened on demand.
const MORE: usize = 16;

/// Returns the processes that had more open at their end than shortly after their start.
pub(super) fn check<'a>(lines: impl IntoIterator<Item = &'a Line>) -> Vec<String> {
    let mut early = BTreeMap::new();
    let mut found = Vec::new();
    for line in lines {
        let What::Uses { when, fds, tasks, threads } = line.what else { continue };
        let now = [fds, tasks, threads];
        if when == When::Early {
            early.insert(line.process, now);
            continue;
        }
        // A process that ended before it was warm has no baseline.
        let Some(before) = early.get(&line.process) else { continue };
        for (what, (now, before)) in
            ["files", "tasks", "threads"].iter().zip(now.iter().zip(before))
        {
            if *now > before + MORE {
                let process = line.process;
                found.push(format!("leak: process {process} has {now} {what} after {before}"));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::short;

    #[test]
    fn a_little_more_is_right() {
        let right = "- uses early 20 14 5\n- uses idle 30 10 5\n- uses end 22 3 5\n";
        assert_eq!(check(&short::lines(0, right)), [""; 0]);
        assert_eq!(check(&short::lines(0, "- uses idle 300 10 5\n")), [""; 0]);
    }

    #[test]
    fn much_more_of_anything_is_a_leak() {
        for end in ["idle 37 10 5", "end 22 31 5", "end 22 3 22"] {
            let text = format!("- uses early 20 14 5\n- uses {end}\n");
            let [leak] = &check(&short::lines(7, &text))[..] else { panic!("{end}") };
            assert!(leak.contains("process 7"), "{leak}");
        }
    }
}
