//! The machine and its operations as text, for stores that keep a row.
//!
//! ```text
//! snapshot  v1 LAST CAPACITY;CLAIM WEIGHT BLOCK TOKEN LEASE EXPIRES HOME[ nNOTE][ fFORMAT];...
//!           X CLAIM UNTIL;...                                     barred until then
//! log       A CLAIM WEIGHT CAPACITY LEASE BLOCK HOME Q|T[ nNOTE][ fFORMAT] NOW;
//!                                                                 acquire: queue, or try
//!           J CLAIM WEIGHT CAPACITY LEASE BLOCK HOME[ nNOTE][ fFORMAT] NOW;
//!                                                                 join the queue, grant nothing
//!           K CLAIM WEIGHT LEASE NOW;                             renew (keep)
//!           R CLAIM USED[ xUNTIL] NOW;                            release, and bar until then
//!           F TOKEN NOW;                                          raise (floor)
//!           D DEADLINE;                                           of those with the next NOW
//! ```
//! Operations that come together have one time, which stands behind the last of them. If that is past
//! the deadline before them, they do nothing, save releases. A claim that is barred can't be taken.
//!
//! A weight that is the whole capacity is `=`. Other numbers are decimal, times in microseconds on
//! the store's clock, claims 32 hexadecimal digits. A claim with a [`Note`] has it behind an `n`,
//! percent-encoded; one without has no such field.
//! Format 1 has no field of a format. Format 2 has one behind each claim whose client writes format 2,
//! and `v2` in the place of `v1`. A snapshot of a later format has its marker there. Statements append
//! nothing to a row with a marker that is not read.
//!
//! All of it is ASCII, so that bytes and characters are the same to every database. The store
//! writes ` NOW;` behind each operation: [`op_text`] gives it without.

use std::fmt::{self, Write};

use super::{Entry, Granted, Machine, Micros, Op, Outcome};
use crate::{ClaimId, Error, ErrorKind, FencingToken, Format, Mode, Note, Queue};

/// What most operations have room in.
const ROOM: usize = 80;

/// The snapshot of a machine in the first format.
pub fn snapshot(machine: &Machine) -> String {
    snapshot_in(Format::OLDEST, machine)
}

/// The snapshot of a machine in this format. The first one has no place for the formats of claims.
pub fn snapshot_in(format: Format, machine: &Machine) -> String {
    let mut text = String::with_capacity(24 + 96 * machine.entries.len());
    // Writing to a String does not fail.
    let _ = write!(text, "v{format} {} {};", machine.last, machine.capacity);
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
            Noted(e.note.as_ref()),
            Marked(e.format.min(format))
        );
    }
    for (claim, until) in machine.barred.iter() {
        let _ = write!(text, "X {claim} {until};");
    }
    text
}

/// The text of operations that happen one after the other at one time, by this deadline if there is
/// one, to which the store appends ` NOW;`.
pub fn ops_text<'a>(deadline: Option<Micros>, ops: impl IntoIterator<Item = &'a Op>) -> String {
    ops_text_in(Format::OLDEST, deadline, ops)
}

/// The same in this format.
pub fn ops_text_in<'a>(
    format: Format,
    deadline: Option<Micros>,
    ops: impl IntoIterator<Item = &'a Op>,
) -> String {
    let mut text = String::with_capacity(ROOM);
    if let Some(deadline) = deadline {
        // Writing to a String does not fail.
        let _ = write!(text, "D {deadline}");
    }
    for op in ops {
        let between = if text.is_empty() { "" } else { ";" };
        // Writing to a String does not fail.
        let _ = write!(text, "{between}{}", Line(op));
        if matches!(op, Op::Acquire { .. } | Op::Join { .. }) {
            let _ = write!(text, "{}", Marked(format));
        }
    }
    text
}

/// The text of one operation, to which the store appends ` NOW;`.
pub fn op_text(op: &Op) -> String {
    ops_text(None, [op])
}

/// An operation without its time.
struct Line<'a>(&'a Op);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self.0 {
            Op::Acquire { claim, mode, lease, block, queue, home, ref note } => {
                let wait = if queue == Queue::FailIfBusy { 'T' } else { 'Q' };
                let (weight, capacity) = (Weight(mode.weight(), mode.capacity()), mode.capacity());
                let note = Noted(note.as_ref());
                write!(f, "A {claim} {weight} {capacity} {lease} {block} {home} {wait}{note}")
            }
            Op::Join { claim, mode, lease, block, home, ref note } => {
                let (weight, capacity) = (Weight(mode.weight(), mode.capacity()), mode.capacity());
                let note = Noted(note.as_ref());
                write!(f, "J {claim} {weight} {capacity} {lease} {block} {home}{note}")
            }
            Op::Renew { claim, mode, lease } => write!(f, "K {claim} {} {lease}", mode.weight()),
            Op::Release { claim, used, bar: 0 } => write!(f, "R {claim} {used}"),
            Op::Release { claim, used, bar } => write!(f, "R {claim} {used} x{bar}"),
            Op::Raise { above } => write!(f, "F {above}"),
        }
    }
}

/// The field of a note, if there is one.
struct Noted<'a>(Option<&'a Note>);

impl fmt::Display for Noted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |note| write!(f, " n{}", note.to_ascii()))
    }
}

/// The field of a format, if it is not the first.
struct Marked(Format);

impl fmt::Display for Marked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == Format::OLDEST { Ok(()) } else { write!(f, " f{}", self.0) }
    }
}

/// A weight of a capacity. Most of them are all of it.
struct Weight(u32, u32);

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == self.1 { f.write_str("=") } else { self.0.fmt(f) }
    }
}

/// What replaying a row tells.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// The state after the last operation.
    pub machine: Machine,
    /// What the last operations of the log, those of its last time, meant for their own claims;
    /// none for an empty log.
    pub outcomes: Vec<Outcome>,
    /// Which claims, their own and others, they have granted the lock that hold it now.
    pub grants: Vec<Granted>,
    /// The store's time of the last operations.
    pub now: Micros,
}

/// Rebuilds the state from a snapshot and the log behind it.
///
/// # Errors
/// `Protocol` when the text is not of this version's format.
pub fn replay(snapshot: &str, log: &str) -> Result<Replayed, Error> {
    resume(snapshot_of(snapshot)?, log)
}

/// Applies a log to the state that it begins with.
///
/// # Errors
/// `Protocol` when the text is not of this version's format.
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
        outcomes.extend(ops.map(|(op, format)| {
            let told = machine.apply_by(&op, by, now, &mut grants);
            let entry = op.claim().and_then(|claim| machine.entry_mut(claim));
            if let Some(entry) = entry.filter(|_| format != Format::OLDEST) {
                entry.format = format;
            }
            told
        }));
    }
    if !together.is_empty() || deadline.is_some() {
        return Err(malformed(log));
    }
    grants.retain(|granted| machine.grant_of(granted.claim).is_some());
    Ok(Replayed { machine, outcomes, grants, now })
}

/// The machine of a snapshot; of an empty text a lock that never was.
///
/// # Errors
/// `Protocol` when the text is not of this version's format.
pub fn snapshot_of(text: &str) -> Result<Machine, Error> {
    if text.is_empty() {
        return Ok(Machine::default());
    }
    let mut lines = lines(text)?;
    let mut head = Fields::of(lines.next().unwrap_or_default());
    let version = head.word()?;
    let number = version.strip_prefix('v').ok_or_else(|| malformed(text))?;
    Format::known(head.parsed(number)?)?;
    let mut machine = Machine::after_token(head.token()?);
    machine.capacity = head.capacity()?;
    head.end()?;
    for line in lines {
        let mut fields = Fields::of(line);
        if fields.rest.next_if_eq(&"X").is_some() {
            let (claim, until) = (fields.claim()?, fields.number()?);
            fields.end()?;
            machine.barred.add(claim, until, 0);
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
            note: fields.note()?,
            format: fields.format()?,
        };
        fields.end()?;
        machine.entries.push(entry);
    }
    Ok(machine)
}

/// The lines of a text. One that was cut off in the middle of a line has lost what nobody knows.
fn lines(text: &str) -> Result<std::str::SplitTerminator<'_, char>, Error> {
    if !text.is_empty() && !text.ends_with(';') {
        return Err(malformed(text.rsplit(';').next().unwrap_or_default()));
    }
    Ok(text.split_terminator(';'))
}

/// An operation with the format of its client, and its time unless that is the next one's.
fn parse_op(line: &str) -> Result<((Op, Format), Option<Micros>), Error> {
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
        "K" => {
            let claim = fields.claim()?;
            let weight = fields.number()?;
            if weight == 0 {
                return Err(malformed(line));
            }
            // A renewal never changes the capacity, so any mode of this weight will do.
            Op::Renew {
                claim,
                mode: Mode::Permits { n: weight, of: weight },
                lease: fields.number()?,
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
    let format = match op {
        Op::Acquire { .. } | Op::Join { .. } => fields.format()?,
        _ => Format::OLDEST,
    };
    let now = fields.rest.next().map(|word| fields.parsed(word)).transpose()?;
    fields.end()?;
    Ok(((op, format), now))
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

    /// A capacity that a lock can have, or zero before its first claim.
    fn capacity(&mut self) -> Result<u32, Error> {
        let capacity = self.number()?;
        let most = Mode::Exclusive.capacity();
        if capacity > most { Err(malformed(self.line)) } else { Ok(capacity) }
    }

    /// A weight that fits the capacity.
    fn weight(&mut self, capacity: u32) -> Result<u32, Error> {
        let word = self.word()?;
        self.weight_of(word, capacity)
    }

    fn weight_of(&self, word: &str, capacity: u32) -> Result<u32, Error> {
        let weight = if word == "=" { capacity } else { self.parsed(word)? };
        if weight == 0 || weight > capacity { Err(malformed(self.line)) } else { Ok(weight) }
    }

    /// A weight, with the capacity behind it.
    fn mode(&mut self) -> Result<Mode, Error> {
        let (weight, capacity) = (self.word()?, self.capacity()?);
        Ok(Mode::from_weight(self.weight_of(weight, capacity)?, capacity))
    }

    /// A token, or zero.
    fn token(&mut self) -> Result<u64, Error> {
        let token = self.number()?;
        if token > FencingToken::MAX.get() { Err(malformed(self.line)) } else { Ok(token) }
    }

    fn claim(&mut self) -> Result<ClaimId, Error> {
        self.word()?.parse().map_err(|_| malformed(self.line))
    }

    /// The note, if there is one. No number begins with its letter.
    fn note(&mut self) -> Result<Option<Note>, Error> {
        let Some(word) = self.rest.next_if(|word| word.starts_with('n')) else { return Ok(None) };
        let note = Note::from_ascii(&word[1..]);
        note.map(Some).ok_or_else(|| malformed(self.line))
    }

    /// The format, if it is not the first. No number begins with its letter.
    fn format(&mut self) -> Result<Format, Error> {
        match self.rest.next_if(|word| word.starts_with('f')) {
            Some(word) => Format::known(self.parsed(&word[1..])?),
            None => Ok(Format::OLDEST),
        }
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
