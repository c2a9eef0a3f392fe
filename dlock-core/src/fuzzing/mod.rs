//! The laws of all parsers of this crate, for arbitrary bytes: one function for each parser, which
//! panics if a law is broken.
//!
//! `proof/fuzz/` runs them for a long time, the tests below for a short time. A normal build does
//! not contain them.

use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::{
    BackendUrl, ClaimId, Error, ErrorKind, FencingToken, LockName, LockOptions, Mode, Note, Queue,
    Renew,
    machine::{Machine, Op, text},
};

#[cfg(test)]
mod tests;

/// The longest error text, whatever the input was: errors end up in logs.
const LONGEST_ERROR: usize = 1200;

/// The password of the URLs in this file.
const SECRET: &str = "hunter2";

/// A lock's name: an accepted name is stored unchanged and obeys the bounds.
pub fn name(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let fits = (1..=LockName::MAX_BYTES).contains(&text.len());
    match LockName::new(text) {
        Ok(name) => {
            assert!(fits && !text.chars().any(char::is_control));
            assert_eq!(name.as_str(), text);
            assert_eq!(name.to_string(), text);
            assert_eq!(LockName::try_from(text.to_owned()).ok(), Some(name));
        }
        Err(error) => {
            assert!(!fits || text.chars().any(char::is_control));
            assert!(matches!(error.kind(), ErrorKind::Config(_)));
            short(&error);
        }
    }
}

/// A note: an accepted note is stored unchanged, obeys the bounds, and can be read from its ASCII
/// form. Each note has exactly one ASCII form.
pub fn note(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let fits = (1..=Note::MAX_BYTES).contains(&text.len());
    match Note::new(text) {
        Ok(note) => {
            assert!(fits && !text.chars().any(char::is_control));
            assert_eq!(note.as_str(), text);
            let word = note.to_ascii();
            assert!(word.bytes().all(|byte| byte.is_ascii_graphic() && byte != b';'), "{word}");
            assert_eq!(Note::from_ascii(&word), Some(note.clone()));
            assert_eq!(Note::fitted(text), Some(note));
        }
        Err(error) => {
            assert!(!fits || text.chars().any(char::is_control));
            assert!(matches!(error.kind(), ErrorKind::Config(_)));
            short(&error);
        }
    }
    if let Some(note) = Note::from_ascii(text) {
        assert_eq!(note.to_ascii(), text);
    }
}

/// A backend's URL: every part is either passed to the driver or an option, unchanged.
pub fn url(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut url: BackendUrl = match text.parse() {
        Ok(url) => url,
        Err(error) => return short(&error),
    };
    assert_eq!(url.scheme(), url.scheme().to_ascii_lowercase());
    let again: BackendUrl = parsed(&url.for_driver());
    assert_eq!((again.scheme(), again.address()), (url.scheme(), url.address()));
    again.finish(&[]).unwrap_or_else(|error| panic!("{error}"));

    let query = text.split_once('?').map_or("", |(_, query)| query);
    let names = query.split('&').filter_map(|pair| pair.strip_prefix("dlock."));
    let mut whole = url.for_driver();
    let mut options = Vec::new();
    for name in names.map(|pair| pair.split('=').next().unwrap_or_default()) {
        if let Err(error) = url.clone().take_duration(name) {
            short(&error);
        }
        if let Err(error) = url.clone().take_bool(name) {
            short(&error);
        }
        let value = url.take(name).unwrap_or_else(|| panic!("{name} is lost"));
        assert_eq!(url.take(name), None, "each stands once");
        let mark = if whole.contains('?') { '&' } else { '?' };
        let encoded = utf8_percent_encode(&value, NON_ALPHANUMERIC);
        whole.push_str(&format!("{mark}dlock.{name}={encoded}"));
        options.push((name, value));
    }
    url.finish(&[]).unwrap_or_else(|error| panic!("{error}"));

    let mut again: BackendUrl = parsed(&whole);
    assert_eq!(again.for_driver(), url.for_driver());
    if let Err(error) = again.finish(&["lease"]) {
        short(&error);
    }
    for (name, value) in options {
        assert_eq!(again.take(name), Some(value));
    }
}

/// A URL with a password of any characters: no text shows the password.
pub fn url_password(data: &[u8]) {
    let Some(text) = with_password(data) else { return };
    let shown = match text.parse::<BackendUrl>() {
        Err(error) => format!("{error} {error:?}"),
        Ok(mut url) => {
            let mut shown = format!("{url} {url:?} {:?}", url.finish(&["lease"]));
            for option in ["lease", "plain", ""] {
                shown += &format!("{:?}", url.clone().take_duration(option).err());
                shown += &format!("{:?}", url.take_bool(option).err());
            }
            shown
        }
    };
    assert!(!shown.contains(SECRET), "{text} shows as {shown}");
}

/// A host with a port: an accepted text has one canonical form, which parses to itself.
pub fn host(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(address) = BackendUrl::with_port(text, 6379) else { return };
    assert_eq!(BackendUrl::with_port(&address, 1).as_deref(), Ok(address.as_str()));
    let (host, port) = address.rsplit_once(':').unwrap_or_else(|| panic!("{address}"));
    assert!(!host.is_empty() && !host.contains(['/', '?', '#', ' ']));
    let number: u16 = port.parse().unwrap_or_else(|_| panic!("{address}"));
    assert!(number > 0 && number.to_string() == port);
}

/// Numbers as options, modes and tokens: accepted values lie within the stated bounds.
pub fn numbers(data: &[u8]) {
    let mut bytes = data.iter();
    let mut number = || (0..8).fold(0, |all: u64, _| (all << 8) | u64::from(next(&mut bytes)));
    let (value, n, of) = (number(), low(number()), low(number()));
    match FencingToken::new(value) {
        Ok(token) => {
            assert!(token <= FencingToken::MAX && token.get() == value && token.as_i64() > 0);
            assert!(token.plus(number()) >= token);
        }
        Err(_) => assert!(value == 0 || value > FencingToken::MAX.get()),
    }
    for (n, of) in [(n, of), (n % 8, of % 8)] {
        if let Ok(mode) = Mode::permits(n, of) {
            assert!(n >= 1 && n <= of && of <= Mode::MAX_PERMITS);
            assert_eq!(Mode::from_weight(mode.weight(), mode.capacity()), mode);
            assert!(mode.capacity() < Mode::Exclusive.capacity());
        }
    }
    let (lease, limit) =
        (Duration::from_micros(value >> (n % 64)), Duration::from_micros(number()));
    let options = LockOptions::new().with_lease(lease).with_renew(Renew::For(limit));
    match options.check() {
        Ok(()) => {
            assert!((LockOptions::MIN_LEASE..=LockOptions::MAX_LEASE).contains(&lease));
            assert!(limit >= lease);
        }
        Err(error) => short(&error),
    }
}

/// A claim's id: each id has one text, and only that text is accepted.
pub fn claim(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(claim) = text.parse::<ClaimId>()
    {
        assert_eq!(claim.to_string(), text);
    }
    let bits = data.iter().take(16).fold(0, |bits: u128, byte| (bits << 8) | u128::from(*byte));
    let claim = ClaimId::from_bits(bits);
    assert_eq!(claim.to_string().parse().ok(), Some(claim));
}

/// A row, snapshot and log with a line feed between them: the replayed state survives a round trip
/// through its text.
pub fn machine_text(data: &[u8]) {
    let Ok(all) = std::str::from_utf8(data) else { return };
    let (snap, log) = all.split_once('\n').unwrap_or((all, ""));
    let replayed = match text::replay(snap, log) {
        Ok(replayed) => replayed,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Protocol);
            return short(&error);
        }
    };
    sound(&replayed.machine, replayed.now);
    // Resuming from a snapshot gives the same result as replaying the whole log.
    let first = log.find(';').map_or(0, |end| end + 1);
    if let Ok(begin) = text::replay(snap, &log[..first]) {
        let snap = text::snapshot(&begin.machine);
        let rest = text::replay(&snap, &log[first..]).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(rest.machine, replayed.machine);
    }
}

/// Operations at times: the text of an operation has the same effect as the operation, and the
/// rules hold for the state.
pub fn machine_log(data: &[u8]) {
    let mut bytes = data.iter();
    let (mut machine, mut log, mut now) = (Machine::default(), String::new(), 0u64);
    let (mut outcomes, mut grants) = (Vec::new(), Vec::new());
    // The largest token that may have been issued.
    let mut used_up = 0;
    while bytes.len() > 0 {
        let (op, passed) = operation(&mut bytes);
        if passed == 0 && !log.is_empty() {
            // Both operations in one statement.
            log.truncate(log.len() - format!(" {now};").len());
            log.push(';');
        } else {
            outcomes.clear();
            grants.clear();
        }
        now = now.saturating_add(passed);
        if let (&Op::Release { claim, used, .. }, true) = (&op, machine.next_expiry() > Some(now))
            && let Some(grant) = machine.grant_of(claim)
        {
            let known = (1..grant.block).contains(&used);
            let used = if known { used } else { grant.block };
            used_up = used_up.max(grant.token.saturating_add(u64::from(used - 1)));
        }
        let before = grants.len();
        outcomes.push(machine.apply(&op, now, &mut grants));
        if let Op::Raise { above } = op {
            used_up = used_up.max(above);
        }
        for grant in &grants[before..] {
            assert!(grant.token > used_up, "{log}");
            used_up = used_up.max(grant.token);
        }
        let line = text::op_text(&op);
        assert!(line.bytes().all(|byte| byte.is_ascii_graphic() && byte != b';' || byte == b' '));
        log += &format!("{line} {now};");
        sound(&machine, now);
    }
    let replayed = text::replay("", &log).unwrap_or_else(|error| panic!("{error}: {log}"));
    grants.retain(|grant| machine.grant_of(grant.claim).is_some());
    assert_eq!((replayed.machine, replayed.outcomes), (machine, outcomes), "{log}");
    assert_eq!((replayed.grants, replayed.now), (grants, now), "{log}");
}

/// Checks that a state survives a round trip through its text, and can be shown.
fn sound(machine: &Machine, now: u64) {
    let snap = text::snapshot(machine);
    assert!(snap.is_ascii() && snap.ends_with(';'));
    let again = text::replay(&snap, "").unwrap_or_else(|error| panic!("{error}: {snap}"));
    assert_eq!(&again.machine, machine);
    assert_eq!(text::snapshot(&again.machine), snap);
    let state = machine.inspect(now);
    assert_eq!(state.holders.is_empty() && state.waiters.is_empty(), machine.is_free(now));
    assert!(state.holders.iter().all(|holder| holder.token.is_some()));
}

/// Reads an operation and the time that has passed since the one before it.
fn operation<'a>(bytes: &mut impl Iterator<Item = &'a u8>) -> (Op, u64) {
    let (kind, who, what, lease) = (next(bytes), next(bytes), next(bytes), next(bytes));
    let claim = ClaimId::from_bits(u128::from(who % 8));
    let (n, of) = (u32::from(what % 3) + 1, u32::from(what / 16 % 3) + 1);
    let mode = match what % 8 {
        0..3 => Mode::Exclusive,
        3..6 => Mode::Shared,
        _ => Mode::permits(n.min(of), of).unwrap_or(Mode::Exclusive),
    };
    // Some numbers are at the upper limit.
    let lease = if lease == u8::MAX { u64::MAX } else { u64::from(lease) + 1 };
    let passed = next(bytes);
    let passed = match passed {
        _ if who >= 0x80 => 0,
        u8::MAX => u64::MAX / 2,
        _ => u64::from(passed % 64),
    };
    let queue = if what & 0x80 == 0 { Queue::Enqueue } else { Queue::FailIfBusy };
    let op = match kind % 4 {
        _ if kind >= 248 => Op::Raise { above: raised(lease, passed) },
        0 | 1 => {
            let block = u32::from(kind / 4) + 1;
            let (home, note) = (u32::from(what), note_of(who, what));
            match kind {
                224.. => Op::Join { claim, mode, lease, block, home, note },
                _ => Op::Acquire { claim, mode, lease, block, queue, home, note },
            }
        }
        2 => Op::Renew { claim, mode, lease, is_last: who & 0x40 != 0 },
        _ => {
            let bar = if what < 0x20 { u64::from(what) * 16 } else { 0 };
            Op::Release { claim, used: u32::from(kind / 4), bar }
        }
    };
    (op, passed)
}

/// Returns a note for a few of the values.
fn note_of(who: u8, what: u8) -> Option<Note> {
    let letter = char::from(what);
    (who & 0x08 != 0).then(|| Note::fitted(&format!("{who} n;{letter}é"))).flatten()
}

/// Returns a token to raise to, near the others or far from them.
fn raised(low: u64, high: u64) -> u64 {
    low.saturating_add(high.saturating_mul(16)).min(FencingToken::MAX.get())
}

/// Builds a URL whose password has pieces of the data around the secret part.
fn with_password(data: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(data).ok().filter(|text| !text.contains(SECRET))?;
    let mut pieces = text.splitn(3, '\n');
    let mut piece = || pieces.next().unwrap_or_default();
    Some(format!("redis://user:{}{SECRET}{}@host{}", piece(), piece(), piece()))
}

fn parsed(text: &str) -> BackendUrl {
    text.parse().unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Checks that the text of an error is short.
fn short(error: &Error) {
    let shown = format!("{error}");
    assert!(shown.len() <= LONGEST_ERROR, "{} bytes: {shown}", shown.len());
}

fn next<'a>(bytes: &mut impl Iterator<Item = &'a u8>) -> u8 {
    bytes.next().copied().unwrap_or_default()
}

fn low(number: u64) -> u32 {
    u32::try_from(number & 0xffff_ffff).unwrap_or_default()
}
