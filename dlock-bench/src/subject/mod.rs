//! What is compared: something that can be asked for a lock by its name. Each subject is a process
//! of its own, which does what it is told by lines, so that none has the parent's work on its
//! bill.
//!
//! The package with other projects' locks (`dlock-bench/peers`) takes this folder in, too: what is
//! compared is measured by the same code. So it uses nothing of dlock.

mod line;
mod work;

use crate::Failure;

pub(crate) use line::serve;

/// What is wanted of a subject.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Want<'a> {
    /// The lock that an application would use.
    One(&'a str),
    /// One that is passed on in the order in which it was asked for. A subject without such gives
    /// what it has.
    Fair(&'a str),
    /// A side of a read-write lock.
    Read(&'a str),
    /// The other side.
    Write(&'a str),
    /// All of these together.
    All(&'a [String]),
}

/// Something that is compared.
pub(crate) trait Subject: Clone + Send + Sync + 'static {
    /// What it gives.
    type Lock: Lock;

    /// A lock, which is not taken yet; an error says why there is no such.
    fn lock(&self, want: Want<'_>) -> impl Future<Output = Result<Self::Lock, Failure>> + Send;

    /// Does what only this subject knows.
    fn more(&self, words: &[&str]) -> impl Future<Output = Result<String, Failure>> + Send {
        let unknown = Err(format!("it does not know: {}", words.join(" ")).into());
        std::future::ready(unknown)
    }
}

/// A lock by its name.
pub(crate) trait Lock: Send + 'static {
    /// Takes it, tells the witness, and gives it back. It waits for as long as somebody else has
    /// it.
    fn cycle<W: Witness>(
        &mut self,
        witness: &mut W,
    ) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Who wants to know when a lock is held.
pub(crate) trait Witness: Send {
    /// It is, now, and until this is over; the fencing token, if it has one.
    fn held(&mut self, token: Option<u64>) -> impl Future<Output = ()> + Send;
}

/// Nobody.
impl Witness for () {
    async fn held(&mut self, _token: Option<u64>) {}
}
