//! The resource that the locks protect. It receives the writes of all holders in the order of their
//! arrival, and passes each of them to a [`Fence`].
//!
//! A holder that was stopped writes when it is resumed, before it checks whether it still holds the
//! lock. Fencing tokens exist for such late writes: the fence has to refuse the write once a newer
//! holder has written.

use std::{
    collections::{BTreeMap, HashMap},
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
    thread::JoinHandle,
};

use dlock_core::{Fence, FencingToken, Instant};
use dlock_testkit::{Stop, Verdict, support::now};
use serde::{Deserialize, Serialize};

use super::line::wire;

/// The last message.
const END: &str = "end";

/// The resource, which runs in the process of the test.
#[derive(Debug)]
pub(super) struct Resource {
    path: PathBuf,
    serving: Option<JoinHandle<Result<Vec<Write>, Stop>>>,
}

/// A write that has arrived.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Write {
    #[serde(with = "wire::nanos")]
    pub(super) at: Instant,
    /// The process and the hold.
    #[serde(rename = "write")]
    pub(super) grant: (usize, u64),
    pub(super) name: String,
    #[serde(with = "wire::token")]
    pub(super) token: FencingToken,
    /// Whether the fence admitted it.
    pub(super) passed: bool,
}

impl Resource {
    /// Opens a resource with its socket in this directory.
    pub(super) fn open(directory: &Path) -> Result<Self, Stop> {
        let path = directory.join("resource");
        let socket = UnixDatagram::bind(&path)?;
        let serving = std::thread::Builder::new()
            .name("resource".to_owned())
            .spawn(move || serve(&socket))?;
        Ok(Self { path, serving: Some(serving) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Closes the resource. Returns the writes in the order of arrival.
    pub(super) fn close(&mut self) -> Result<Vec<Write>, Stop> {
        let Some(serving) = self.serving.take() else { return Ok(Vec::new()) };
        UnixDatagram::unbound()?.send_to(END.as_bytes(), &self.path)?;
        serving.join().unwrap_or_else(|_| Err(Stop::failed("the resource has panicked")))
    }
}

impl Drop for Resource {
    fn drop(&mut self) {
        let _ = self.close();
    }
}

fn serve(socket: &UnixDatagram) -> Result<Vec<Write>, Stop> {
    let mut fences: HashMap<String, Fence> = HashMap::new();
    let mut writes = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        let length = socket.recv(&mut buffer)?;
        let text = str::from_utf8(&buffer[..length])?;
        if text == END {
            return Ok(writes);
        }
        let mut write = Write::parse(text)?;
        let fence = fences.entry(write.name.clone()).or_default();
        write.passed = fence.admit(write.token).is_ok();
        writes.push(write);
    }
}

/// A holder's connection to the resource.
#[derive(Debug)]
pub(super) struct Writer {
    process: usize,
    socket: UnixDatagram,
}

impl Writer {
    pub(super) fn open(process: usize, path: &Path) -> Result<Self, Stop> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        Ok(Self { process, socket })
    }

    /// Writes to the resource, whether the lock is still held or not.
    pub(super) fn write(&self, hold: u64, token: FencingToken, name: &str) -> Verdict {
        let text = format!("{} {hold} {token} {name}", self.process);
        self.socket.send(text.as_bytes())?;
        Ok(())
    }
}

impl Write {
    fn parse(text: &str) -> Result<Self, Stop> {
        let bad = || Stop::failed(format!("not a write: {text:?}"));
        let mut words = text.splitn(4, ' ');
        let mut word = || words.next().ok_or_else(bad);
        let grant = (word()?.parse()?, word()?.parse()?);
        let token = FencingToken::new(word()?.parse()?)?;
        Ok(Self { at: now(), grant, name: word()?.to_owned(), token, passed: false })
    }
}

/// Returns the number of writes that the fence refused. If [`check`] succeeds, these are exactly
/// the writes that came after a write of a newer holder.
pub(super) fn late(writes: &[Write]) -> usize {
    writes.iter().filter(|write| !write.passed).count()
}

/// Checks that no write passed after one of a newer holder, that no two holders wrote with the same
/// token, and that the fence refused no write without need.
///
/// # Errors
/// The first write that violates this, and how.
pub(super) fn check(writes: &[Write]) -> Result<(), (&Write, String)> {
    let mut last: BTreeMap<&str, &Write> = BTreeMap::new();
    for write in writes {
        let before = last.get(write.name.as_str()).copied();
        let is_late = before.is_some_and(|before| write.token < before.token);
        match (write.passed, is_late) {
            (true, true) => {
                return Err((write, format!("passed late: {write:?} after {before:?}")));
            }
            (false, false) => {
                return Err((write, format!("refused in time: {write:?} after {before:?}")));
            }
            (false, true) => continue,
            (true, false) => {}
        }
        if let Some(before) = before
            && before.token == write.token
            && before.grant != write.grant
        {
            return Err((write, format!("one token of two holders: {before:?} and {write:?}")));
        }
        last.insert(&write.name, write);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(hold: u64, token: u64, passed: bool) -> Write {
        let token = FencingToken::new(token).unwrap();
        let (at, name) = (Instant::from_nanos(hold), "a/b c".to_owned());
        Write { at, grant: (1, hold), name, token, passed }
    }

    #[test]
    fn writes_arrive_in_order_and_late_ones_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let mut resource = Resource::open(directory.path()).unwrap();
        let writer = Writer::open(1, resource.path()).unwrap();
        for (hold, token) in [(1, 5), (2, 7), (1, 5), (2, 7), (3, 8)] {
            writer.write(hold, FencingToken::new(token).unwrap(), "a/b c").unwrap();
        }
        let writes = resource.close().unwrap();
        let passed: Vec<_> = writes.iter().map(|write| write.passed).collect();
        assert_eq!(passed, [true, true, false, true, true]);
        assert_eq!((writes[1].name.as_str(), writes[1].grant.1), ("a/b c", 2));
        assert_eq!((check(&writes), late(&writes)), (Ok(()), 1));
    }

    #[test]
    fn each_kind_of_wrong_is_found() {
        for (wrong, what) in [
            (vec![write(1, 7, true), write(2, 5, true)], "passed late"),
            (vec![write(1, 5, true), write(2, 7, false)], "refused in time"),
            (vec![write(1, 5, true), write(2, 5, true)], "two holders"),
        ] {
            assert!(check(&wrong).unwrap_err().1.contains(what), "{wrong:?}");
        }
        assert!(Write::parse("1 2 x a").is_err());
    }
}
