//! The machine and its operations as text, for stores that keep a row.
//!
//! ```text
//! snapshot  v1 LAST CAPACITY;CLAIM WEIGHT BLOCK TOKEN LEASE EXPIRES HOME[ l][ nNOTE];...
//!                                                                 l: the last renewal set EXPIRES
//!           X CLAIM UNTIL;...                                     barred until then
//! log       A CLAIM WEIGHT CAPACITY LEASE BLOCK HOME Q|T[ nNOTE] NOW;
//!                                                                 acquire: queue, or try
//!           J CLAIM WEIGHT CAPACITY LEASE BLOCK HOME[ nNOTE] NOW;
//!                                                                 join the queue, grant nothing
//!           K CLAIM WEIGHT LEASE NOW;                             renew (keep)
//!           L CLAIM WEIGHT LEASE NOW;                             renew for the last time
//!           R CLAIM USED[ xUNTIL] NOW;                            release, and bar until then
//!           F TOKEN NOW;                                          raise (floor)
//!           D DEADLINE;                                           of those with the next NOW
//! ```
//! Operations that are applied together have one time, which follows the last of them. If that time
//! is after their deadline, only releases take effect. A barred claim can't be acquired.
//!
//! A weight that is the whole capacity is written as `=`. Other numbers are decimal, times are in
//! microseconds of the store's clock, and claims have 32 hexadecimal digits. The [`Note`] of a
//! claim follows an `n`, percent-encoded; a claim without a note has no such field. All of the text
//! is ASCII, so that bytes and characters are the same in every database. The store appends ` NOW;`
//! to each operation: [`op_text`] returns the text without it.
//!
//! The first word of a snapshot is the marker of its format. Later formats have their marker there,
//! too. A statement appends nothing to a row whose marker it does not know.

use std::fmt::{self, Write};

use super::{Entry, Granted, Machine, Micros, Op, Outcome};
use crate::{ClaimId, Error, ErrorKind, FORMAT, FencingToken, Mode, Note, Queue, unknown_format};

/// The capacity in bytes that suffices for most operations.
const ROOM: usize = 80;

/// Returns the snapshot of a machine.
pub fn snapshot(machine: &Machine) -> String {
    let mut text = String::with_capacity(24 + 96 * machine.entries.len());
    // Writing to a String can't fail.
    let _ = write!(text, "v{FORMAT} {} {};", machine.last, machine.capacity);
    for e in &machine.entries {
        let weight = Weight(e.weight, machine.capacity);
        let _ = write!(
            text,
            "{} {weight} {} {} {} {} {}{}{};",
            e.claim,
            e.block,
            e.token,
            e.lease,
            e.expires,
            e.home,
            if e.is_final { " l" } else { "" },
            NoteText(e.note.as_ref())
        );
    }
    for (claim, until) in machine.tombstones.iter() {
        let _ = write!(text, "X {claim} {until};");
    }
    text
}

/// Returns the text of operations that are applied one after the other at one time, with their
/// deadline if they have one. The store appends ` NOW;`.
pub fn ops_text<'a>(deadline: Option<Micros>, ops: impl IntoIterator<Item = &'a Op>) -> String {
    let mut text = String::with_capacity(ROOM);
    if let Some(deadline) = deadline {
        // Writing to a String can't fail.
        let _ = write!(text, "D {deadline}");
    }
    for op in ops {
        let between = if text.is_empty() { "" } else { ";" };
        // Writing to a String can't fail.
        let _ = write!(text, "{between}{}", OpText(op));
    }
    text
}

/// Returns the text of one operation, to which the store appends ` NOW;`.
pub fn op_text(op: &Op) -> String {
    ops_text(None, [op])
}

/// An operation without its time.
struct OpText<'a>(&'a Op);

impl fmt::Display for OpText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self.0 {
            Op::Acquire { claim, mode, lease, block, queue, home, ref note } => {
                let wait = if queue == Queue::FailIfBusy { 'T' } else { 'Q' };
                let (weight, cap) = (Weight(mode.weight(), mode.capacity()), mode.capacity());
                let note = NoteText(note.as_ref());
                write!(f, "A {claim} {weight} {cap} {lease} {block} {home} {wait}{note}")
            }
            Op::Join { claim, mode, lease, block, home, ref note } => {
                let (weight, cap) = (Weight(mode.weight(), mode.capacity()), mode.capacity());
                let note = NoteText(note.as_ref());
                write!(f, "J {claim} {weight} {cap} {lease} {block} {home}{note}")
            }
            Op::Renew { claim, mode, lease, is_last } => {
                let letter = if is_last { 'L' } else { 'K' };
                write!(f, "{letter} {claim} {} {lease}", mode.weight())
            }
            Op::Release { claim, used, bar: 0 } => write!(f, "R {claim} {used}"),
            Op::Release { claim, used, bar } => write!(f, "R {claim} {used} x{bar}"),
            Op::Raise { above } => write!(f, "F {above}"),
        }
    }
}

/// The field of a note, if there is one.
struct NoteText<'a>(Option<&'a Note>);

impl fmt::Display for NoteText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |note| write!(f, " n{}", note.to_ascii()))
    }
}

/// A weight of a capacity, which for most claims is the whole capacity.
struct Weight(u32, u32);

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == self.1 { f.write_str("=") } else { self.0.fmt(f) }
    }
}

/// The result of replaying a row.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// The state after the last operation.
    pub machine: Machine,
    /// The outcomes of the last operations of the log, those with its last time, for their own
    /// claims. Empty for an empty log.
    pub outcomes: Vec<Outcome>,
    /// The claims that these operations granted, their own and others, if they still hold the lock.
    pub grants: Vec<Granted>,
    /// The store's time of the last operations.
    pub now: Micros,
}

/// Rebuilds the state from a snapshot and the log that follows it.
///
/// # Errors
/// `Protocol` if the text does not have this version's format.
pub fn replay(snapshot: &str, log: &str) -> Result<Replayed, Error> {
    resume(snapshot_of(snapshot)?, log)
}

/// Applies a log to a state.
///
/// # Errors
/// `Protocol` if the text does not have this version's format.
pub fn resume(mut machine: Machine, log: &str) -> Result<Replayed, Error> {
    let (mut outcomes, mut grants, mut now) = (Vec::new(), Vec::new(), 0);
    let (mut together, mut deadline) = (Vec::new(), None);
    for line in lines(log)? {
        if let Some(by) = line.strip_prefix("D ").filter(|_| together.is_empty()) {
            let by = Fields::of(line).parsed(by)?;
            if deadline.replace(by).is_some() {
                return Err(malformed(line));
            }
            continue;
        }
        let (op, at) = parse_op(line)?;
        let Some(at) = at else {
            together.push(op);
            continue;
        };
        now = at;
        outcomes.clear();
        grants.clear();
        let (ops, by) = (together.drain(..).chain([op]), deadline.take());
        outcomes.extend(ops.map(|op| machine.apply_by(&op, by, now, &mut grants)));
    }
    if !together.is_empty() || deadline.is_some() {
        return Err(malformed(log));
    }
    grants.retain(|granted| machine.grant_of(granted.claim).is_some());
    Ok(Replayed { machine, outcomes, grants, now })
}

/// Parses the machine of a snapshot; an empty text is a lock that was never used.
///
/// # Errors
/// `Protocol` if the text does not have this version's format.
pub fn snapshot_of(text: &str) -> Result<Machine, Error> {
    if text.is_empty() {
        return Ok(Machine::default());
    }
    let mut lines = lines(text)?;
    let mut head = Fields::of(lines.next().unwrap_or_default());
    let version = head.word()?;
    let number = version.strip_prefix('v').ok_or_else(|| malformed(text))?;
    let number: u64 = head.parsed(number)?;
    if number != u64::from(FORMAT) {
        return Err(unknown_format(number));
    }
    let mut machine = Machine::after_token(head.token()?);
    machine.capacity = head.capacity()?;
    head.end()?;
    for line in lines {
        let mut fields = Fields::of(line);
        if fields.rest.next_if_eq(&"X").is_some() {
            let (claim, until) = (fields.claim()?, fields.number()?);
            fields.end()?;
            machine.tombstones.add(claim, until, 0);
            continue;
        }
        let entry = Entry {
            claim: fields.claim()?,
            weight: fields.weight(machine.capacity)?,
            block: fields.number::<u32>()?.max(1),
            token: fields.token()?,
            lease: fields.number()?,
            expires: fields.number()?,
            home: fields.number()?,
            is_final: fields.rest.next_if_eq(&"l").is_some(),
            note: fields.note()?,
        };
        fields.end()?;
        machine.entries.push(entry);
    }
    Ok(machine)
}

/// Returns the lines of a text. A text that is cut off within a line has lost data and is an error.
fn lines(text: &str) -> Result<std::str::SplitTerminator<'_, char>, Error> {
    if !text.is_empty() && !text.ends_with(';') {
        return Err(malformed(text.rsplit(';').next().unwrap_or_default()));
    }
    Ok(text.split_terminator(';'))
}

/// Parses an operation and its time. The time is missing if the next operation carries it.
fn parse_op(line: &str) -> Result<(Op, Option<Micros>), Error> {
    let mut fields = Fields::of(line);
    let op = match fields.word()? {
        "A" => Op::Acquire {
            claim: fields.claim()?,
            mode: fields.mode()?,
            lease: fields.number()?,
            block: fields.number()?,
            home: fields.number()?,
            queue: match fields.word()? {
                "Q" => Queue::Enqueue,
                "T" => Queue::FailIfBusy,
                _ => return Err(malformed(line)),
            },
            note: fields.note()?,
        },
        "J" => Op::Join {
            claim: fields.claim()?,
            mode: fields.mode()?,
            lease: fields.number()?,
            block: fields.number()?,
            home: fields.number()?,
            note: fields.note()?,
        },
        letter @ ("K" | "L") => {
            let claim = fields.claim()?;
            let weight = fields.number()?;
            if weight == 0 {
                return Err(malformed(line));
            }
            // A renewal never changes the capacity, so any mode of this weight is sufficient.
            Op::Renew {
                claim,
                mode: Mode::Permits { n: weight, of: weight },
                lease: fields.number()?,
                is_last: letter == "L",
            }
        }
        "R" => {
            let (claim, used) = (fields.claim()?, fields.number()?);
            let bar = fields.rest.next_if(|word| word.starts_with('x'));
            let bar = bar.map(|word| fields.parsed(&word[1..])).transpose()?;
            Op::Release { claim, used, bar: bar.unwrap_or(0) }
        }
        "F" => Op::Raise { above: fields.token()? },
        _ => return Err(malformed(line)),
    };
    let now = fields.rest.next().map(|word| fields.parsed(word)).transpose()?;
    fields.end()?;
    Ok((op, now))
}

/// The space-separated fields of one line.
struct Fields<'a> {
    line: &'a str,
    rest: std::iter::Peekable<std::str::Split<'a, char>>,
}

impl<'a> Fields<'a> {
    fn of(line: &'a str) -> Self {
        Self { line, rest: line.split(' ').peekable() }
    }

    fn word(&mut self) -> Result<&'a str, Error> {
        self.rest.next().ok_or_else(|| malformed(self.line))
    }

    fn number<T: std::str::FromStr>(&mut self) -> Result<T, Error> {
        let word = self.word()?;
        self.parsed(word)
    }

    fn parsed<T: std::str::FromStr>(&self, word: &str) -> Result<T, Error> {
        let digits = word.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| word.parse().ok()).flatten().ok_or_else(|| malformed(self.line))
    }

    /// Reads a valid capacity of a lock, or zero before its first claim.
    fn capacity(&mut self) -> Result<u32, Error> {
        let capacity = self.number()?;
        let most = Mode::Exclusive.capacity();
        if capacity > most { Err(malformed(self.line)) } else { Ok(capacity) }
    }

    /// Reads a weight that fits the capacity.
    fn weight(&mut self, capacity: u32) -> Result<u32, Error> {
        let word = self.word()?;
        self.weight_of(word, capacity)
    }

    fn weight_of(&self, word: &str, capacity: u32) -> Result<u32, Error> {
        let weight = if word == "=" { capacity } else { self.parsed(word)? };
        if weight == 0 || weight > capacity { Err(malformed(self.line)) } else { Ok(weight) }
    }

    /// Reads a weight and the capacity that follows it.
    fn mode(&mut self) -> Result<Mode, Error> {
        let (weight, capacity) = (self.word()?, self.capacity()?);
        Ok(Mode::from_weight(self.weight_of(weight, capacity)?, capacity))
    }

    /// Reads a token, or zero.
    fn token(&mut self) -> Result<u64, Error> {
        let token = self.number()?;
        if token > FencingToken::MAX.get() { Err(malformed(self.line)) } else { Ok(token) }
    }

    fn claim(&mut self) -> Result<ClaimId, Error> {
        self.word()?.parse().map_err(|_| malformed(self.line))
    }

    /// Reads the note, if present. No number begins with its letter.
    fn note(&mut self) -> Result<Option<Note>, Error> {
        let Some(word) = self.rest.next_if(|word| word.starts_with('n')) else { return Ok(None) };
        let note = Note::from_ascii(&word[1..]);
        note.map(Some).ok_or_else(|| malformed(self.line))
    }

    fn end(&mut self) -> Result<(), Error> {
        if self.rest.next().is_some() { Err(malformed(self.line)) } else { Ok(()) }
    }
}

fn malformed(line: &str) -> Error {
    // A whole log may be one line.
    let line = format!("{line:.80}");
    Error::new(
        ErrorKind::Protocol,
        format!(
            "the store holds a line that no version of dlock writes ({line:?}): somebody else \
             writes to its table; remove the row when nobody uses the lock"
        ),
    )
}
