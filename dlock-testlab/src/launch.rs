//! What is to run as a daemon, and how.

use std::path::{Path, PathBuf};

use super::{account::Account, clock::SteppedClock, home::Home};

/// What the program prints, in its directory.
pub(super) const LOG: &str = "log";

/// A program with what it needs to run.
#[derive(Clone, Debug)]
pub(super) struct Launch {
    pub(super) program: PathBuf,
    pub(super) args: Vec<String>,
    pub(super) directory: PathBuf,
    /// As whom it runs, if not as ourselves.
    pub(super) account: Option<Account>,
    pub(super) children: Children,
    /// The shell commands that remove what it leaves outside of its directory, which they run in. They
    /// run after each of its ends.
    pub(super) remains: &'static str,
    pub(super) clock: Option<SteppedClock>,
}

/// Where the children of a server are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Children {
    /// In its process group, if there are any.
    InGroup,
    /// Each in a process group of its own.
    Apart,
}

impl Launch {
    /// The program with these arguments, as ourselves in this directory.
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

    /// Sets where its children are.
    pub(super) fn with_children(mut self, children: Children) -> Self {
        self.children = children;
        self
    }

    /// Sets which wall clock it goes by, if not by the machine's.
    pub(super) fn with_clock(mut self, clock: Option<&SteppedClock>) -> Self {
        self.clock = clock.cloned();
        self
    }

    pub(super) fn printed(&self) -> String {
        std::fs::read_to_string(self.directory.join(LOG)).unwrap_or_default()
    }
}

impl Home {
    /// A program that is to run here.
    pub(super) fn launch(&self, program: &Path, args: &[&str]) -> Launch {
        let (account, remains) = (self.account, self.remains);
        Launch { account, remains, ..Launch::new(program, args, self.path()) }
    }
}
