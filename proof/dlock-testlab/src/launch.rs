//! The description of a program that runs as a daemon.

use std::path::{Path, PathBuf};

use super::{account::Account, clock::SteppedClock, home::Home};

/// The file in the program's directory that gets its output.
pub(super) const LOG: &str = "log";

/// A program with what it needs to run.
#[derive(Clone, Debug)]
pub(super) struct Launch {
    pub(super) program: PathBuf,
    pub(super) args: Vec<String>,
    pub(super) directory: PathBuf,
    /// The account that the program runs as; `None` is the account of this process.
    pub(super) account: Option<Account>,
    pub(super) children: Children,
    /// Shell commands that remove what the program leaves outside of its directory. They run in the
    /// directory each time the program has ended.
    pub(super) remains: &'static str,
    pub(super) clock: Option<SteppedClock>,
}

/// The process groups of a server's children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Children {
    /// The children are in the server's process group, or there are none.
    InGroup,
    /// Each child is in a process group of its own.
    Apart,
}

impl Launch {
    /// Returns a launch of the program with these arguments in this directory, as the account of
    /// this process.
    pub(super) fn new(program: &Path, args: &[&str], directory: &Path) -> Self {
        Self {
            program: program.to_owned(),
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            directory: directory.to_owned(),
            account: None,
            children: Children::InGroup,
            remains: "",
            clock: None,
        }
    }

    /// Sets the process groups of the children.
    pub(super) fn with_children(mut self, children: Children) -> Self {
        self.children = children;
        self
    }

    /// Sets the wall clock of the program. The default is the machine's.
    pub(super) fn with_clock(mut self, clock: Option<&SteppedClock>) -> Self {
        self.clock = clock.cloned();
        self
    }

    pub(super) fn printed(&self) -> String {
        std::fs::read_to_string(self.directory.join(LOG)).unwrap_or_default()
    }
}

impl Home {
    /// Returns a launch of the program in this home.
    pub(super) fn launch(&self, program: &Path, args: &[&str]) -> Launch {
        let (account, remains) = (self.account, self.remains);
        Launch { account, remains, ..Launch::new(program, args, self.path()) }
    }
}
