//! The data of the server, and the commands on it.
//!
//! There is one database. A key expires by the clock of the server: it is removed when a command
//! finds it after its end. Each command takes the options that dlock uses, and refuses all others as
//! a syntax error.

use std::collections::{BTreeMap, BTreeSet};

use super::resp::{Bytes, Value, number_text};

pub(super) const INTEGER: &str = "ERR value is not an integer or out of range";
const FLOAT: &str = "ERR value is not a valid float";
const RANGE: &str = "ERR min or max is not a float";
const SYNTAX: &str = "ERR syntax error";
const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// An answer, or the refusal of a command.
type Answer = Result<Value, Value>;
type Command = fn(&mut Data, &[Bytes]) -> Answer;
/// Members in the order of their scores. Sets are small here, so that a search costs little.
type Members = Vec<(f64, Bytes)>;

/// The commands, with the least and the largest number of words.
const COMMANDS: [(&str, usize, usize, Command); 24] = [
    ("DEL", 2, usize::MAX, Data::del),
    ("EXISTS", 2, usize::MAX, Data::exists),
    ("GET", 2, 2, Data::get),
    ("HDEL", 3, usize::MAX, Data::hdel),
    ("HGET", 3, 3, Data::hget),
    ("HSET", 4, usize::MAX, Data::hset),
    ("PEXPIRE", 3, 4, Data::pexpire),
    ("PING", 1, 2, Data::ping),
    ("PTTL", 2, 2, Data::pttl),
    ("PUBLISH", 3, 3, |data, words| data.publish(false, words)),
    ("SCAN", 2, usize::MAX, Data::scan),
    ("SET", 3, usize::MAX, Data::set),
    ("SETRANGE", 4, 4, Data::setrange),
    ("SPUBLISH", 3, 3, |data, words| data.publish(true, words)),
    ("TIME", 1, 1, Data::time),
    ("ZADD", 4, usize::MAX, Data::zadd),
    ("ZCARD", 2, 2, Data::zcard),
    ("ZPOPMIN", 2, 2, Data::zpopmin),
    ("ZRANGE", 4, 5, Data::zrange),
    ("ZRANGEBYSCORE", 4, 4, Data::zrangebyscore),
    ("ZRANK", 3, 3, Data::zrank),
    ("ZREM", 3, usize::MAX, Data::zrem),
    ("ZSCORE", 3, 3, Data::zscore),
    // There are no replicas. It does not wait for any, as if the timeout were over.
    ("WAIT", 3, 3, |_, _| Ok(Value::count(0))),
];

#[derive(Debug)]
enum Content {
    Text(Bytes),
    Hash(BTreeMap<Bytes, Bytes>),
    SortedSet(Members),
}

#[derive(Debug)]
struct Entry {
    content: Content,
    /// The last millisecond of the server's clock in which the key exists.
    ends: Option<i64>,
}

#[derive(Debug, Default)]
pub(super) struct Data {
    /// The server's clock, in microseconds.
    pub(super) now: u64,
    /// The messages that are to be sent, each with its connection.
    pub(super) messages: Vec<(u64, Value)>,
    entries: BTreeMap<Bytes, Entry>,
    /// The connections that have subscribed to a channel. A sharded channel shares its name with no
    /// other.
    channels: BTreeMap<(bool, Bytes), BTreeSet<u64>>,
}

impl Data {
    /// Executes a command of a client.
    pub(super) fn run(&mut self, words: &[Bytes]) -> Value {
        let name = String::from_utf8_lossy(&words[0]);
        let refusal = match command(&words[0]) {
            Some((_, least, most, run)) if (*least..=*most).contains(&words.len()) => {
                return run(self, words).unwrap_or_else(|refusal| refusal);
            }
            Some(_) => wrong_number(&name),
            None => {
                let quoted = |word: &Bytes| format!("'{}' ", String::from_utf8_lossy(word));
                let rest: String = words[1..].iter().map(quoted).collect();
                format!("ERR unknown command '{name}', with args beginning with: {rest}")
            }
        };
        Value::error(refusal)
    }

    /// Executes a command of a script, whose refusals have other texts.
    pub(super) fn run_for_script(&mut self, words: &[Bytes]) -> Value {
        match command(&words[0]) {
            None => Value::error("ERR Unknown Redis command called from script"),
            Some((_, least, most, _)) if !(*least..=*most).contains(&words.len()) => {
                Value::error("ERR Wrong number of args calling Redis command from script")
            }
            _ => self.run(words),
        }
    }

    /// Removes all connections, and the keys unless they are kept.
    pub(super) fn restart(&mut self, keeps_keys: bool) {
        self.channels.clear();
        self.messages.clear();
        if !keeps_keys {
            self.entries.clear();
        }
    }

    /// Returns a line for each key, field and member that exists.
    pub(super) fn lines(&mut self) -> Vec<Bytes> {
        self.expire();
        let mut lines = Vec::new();
        for (key, entry) in &self.entries {
            let left = entry.ends.map_or(-1, |ends| ends - self.millis());
            let head = [key, format!(" ({left} ms): ").as_bytes()].concat();
            let mut add = |name: &[u8], value: &[u8]| {
                lines.push([&head, name, b" ", value].concat());
            };
            match &entry.content {
                Content::Text(text) => add(b"=", text),
                Content::Hash(fields) => fields.iter().for_each(|(name, value)| add(name, value)),
                Content::SortedSet(members) => members
                    .iter()
                    .for_each(|(score, member)| add(member, number_text(*score).as_bytes())),
            }
        }
        lines
    }

    /// Adds a subscriber. Returns the number of its channels of this kind.
    pub(super) fn subscribe(&mut self, connection: u64, is_sharded: bool, channel: &[u8]) -> usize {
        self.channels.entry((is_sharded, channel.to_vec())).or_default().insert(connection);
        self.subscriptions(connection, is_sharded).len()
    }

    /// Removes a subscriber. Returns the number of its channels of this kind.
    pub(super) fn unsubscribe(
        &mut self,
        connection: u64,
        is_sharded: bool,
        channel: &[u8],
    ) -> usize {
        if let Some(subscribers) = self.channels.get_mut(&(is_sharded, channel.to_vec())) {
            subscribers.remove(&connection);
        }
        self.channels.retain(|_, subscribers| !subscribers.is_empty());
        self.subscriptions(connection, is_sharded).len()
    }

    /// Returns the channels of this kind to which a connection has subscribed.
    pub(super) fn subscriptions(&self, connection: u64, is_sharded: bool) -> Vec<Bytes> {
        let of = self.channels.iter().filter(|((other, _), subscribers)| {
            *other == is_sharded && subscribers.contains(&connection)
        });
        of.map(|((_, channel), _)| channel.clone()).collect()
    }

    fn millis(&self) -> i64 {
        i64::try_from(self.now / 1000).unwrap_or(i64::MAX)
    }

    fn expire(&mut self) {
        let now = self.millis();
        self.entries.retain(|_, entry| entry.ends.is_none_or(|ends| now <= ends));
    }

    /// Returns a key that has not expired.
    fn entry(&mut self, key: &[u8]) -> Option<&mut Entry> {
        let now = self.millis();
        if self.entries.get(key)?.ends.is_some_and(|ends| now > ends) {
            self.entries.remove(key);
        }
        self.entries.get_mut(key)
    }

    /// Returns the content of a key, if it has this type.
    fn content<T>(
        &mut self,
        key: &[u8],
        of_type: fn(&mut Content) -> Option<&mut T>,
    ) -> Result<Option<&mut T>, Value> {
        match self.entry(key) {
            Some(entry) => {
                of_type(&mut entry.content).map(Some).ok_or_else(|| Value::error(WRONG_TYPE))
            }
            None => Ok(None),
        }
    }

    /// Returns the content of a key, which it creates if it does not exist.
    fn content_or<T>(
        &mut self,
        key: &[u8],
        of_type: fn(&mut Content) -> Option<&mut T>,
        new: Content,
    ) -> Result<&mut T, Value> {
        if self.entry(key).is_none() {
            self.entries.insert(key.to_vec(), Entry { content: new, ends: None });
        }
        self.content(key, of_type)?.ok_or_else(|| Value::error(WRONG_TYPE))
    }

    /// Returns the members of a sorted set, or none.
    fn members(&mut self, key: &[u8]) -> Result<&[(f64, Bytes)], Value> {
        Ok(self.content(key, Content::members)?.map_or(&[], |members| members))
    }
}

/// Keys.
impl Data {
    fn del(&mut self, words: &[Bytes]) -> Answer {
        let remove =
            |key: &&Bytes| self.entry(key).is_some() && self.entries.remove(*key).is_some();
        Ok(Value::count(words[1..].iter().filter(remove).count()))
    }

    fn exists(&mut self, words: &[Bytes]) -> Answer {
        Ok(Value::count(words[1..].iter().filter(|key| self.entry(key).is_some()).count()))
    }

    /// `PEXPIRE key ms [GT | LT]`.
    fn pexpire(&mut self, words: &[Bytes]) -> Answer {
        let option = words.get(3).map(|option| option.to_ascii_uppercase());
        let (is_longer, is_shorter) = match option.as_deref() {
            None => (false, false),
            Some(b"GT") => (true, false),
            Some(b"LT") => (false, true),
            Some(_) => {
                let option = String::from_utf8_lossy(&words[3]);
                return Err(Value::error(format!("ERR Unsupported option {option}")));
            }
        };
        let invalid = || Value::error("ERR invalid expire time in 'pexpire' command");
        let now = self.millis();
        let ends = integer(&words[2])?.checked_add(now).ok_or_else(invalid)?;
        let Some(entry) = self.entry(&words[1]) else { return Ok(Value::count(0)) };
        let before = entry.ends;
        // A key without an end ends later than any other.
        if is_longer && before.is_none_or(|before| ends <= before)
            || is_shorter && before.is_some_and(|before| ends >= before)
        {
            return Ok(Value::count(0));
        }
        entry.ends = Some(ends);
        if ends <= now {
            self.entries.remove(&words[1]);
        }
        Ok(Value::count(1))
    }

    fn pttl(&mut self, words: &[Bytes]) -> Answer {
        let now = self.millis();
        let left = match self.entry(&words[1]) {
            Some(entry) => entry.ends.map_or(-1, |ends| ends - now),
            None => -2,
        };
        Ok(Value::Integer(left))
    }

    /// `SCAN cursor [MATCH pattern] [COUNT keys] [TYPE type]`. The cursor is the position of the next
    /// key in an order that no change of the keys affects.
    fn scan(&mut self, words: &[Bytes]) -> Answer {
        let cursor = str::from_utf8(&words[1]).ok().and_then(|text| text.parse::<u64>().ok());
        let cursor = cursor.ok_or_else(|| Value::error("ERR invalid cursor"))?;
        let (mut pattern, mut count, mut kind) = (b"*".as_slice(), 10, None);
        for option in words[2..].chunks(2) {
            match (option[0].to_ascii_uppercase().as_slice(), option.get(1)) {
                (b"MATCH", Some(text)) => pattern = text,
                (b"COUNT", Some(number)) => count = integer(number)?,
                (b"TYPE", Some(name)) => kind = Some(name.to_ascii_lowercase()),
                _ => return Err(Value::error(SYNTAX)),
            }
            if count < 1 {
                return Err(Value::error(SYNTAX));
            }
        }
        self.expire();
        let positions = self.entries.iter().map(|(key, entry)| (position(key), key, entry));
        let mut rest: Vec<_> = positions.filter(|(position, ..)| *position >= cursor).collect();
        rest.sort_by_key(|(position, key, _)| (*position, *key));
        let last =
            rest.get(usize::try_from(count).unwrap_or(usize::MAX)).map(|(position, ..)| *position);
        let found = rest.iter().filter(|(position, key, entry)| {
            last.is_none_or(|last| *position < last)
                && matches(pattern, key)
                && kind.as_ref().is_none_or(|kind| entry.content.kind().as_bytes() == kind)
        });
        let found = found.map(|(_, key, _)| Value::text(key)).collect();
        Ok(Value::Array(vec![Value::text(last.unwrap_or(0).to_string()), Value::Array(found)]))
    }
}

/// Texts.
impl Data {
    fn get(&mut self, words: &[Bytes]) -> Answer {
        let text = self.content(&words[1], Content::text)?;
        Ok(text.map_or(Value::Null, Value::text))
    }

    /// `SET key text [NX] [PX ms | KEEPTTL]`.
    fn set(&mut self, words: &[Bytes]) -> Answer {
        let (mut is_new, mut keeps_end, mut lease) = (false, false, None);
        let mut options = words[3..].iter();
        while let Some(option) = options.next() {
            match option.to_ascii_uppercase().as_slice() {
                b"NX" => is_new = true,
                b"KEEPTTL" if lease.is_none() => keeps_end = true,
                b"PX" if !keeps_end => {
                    lease = Some(options.next().ok_or_else(|| Value::error(SYNTAX))?);
                }
                _ => return Err(Value::error(SYNTAX)),
            }
        }
        let mut ends = None;
        if let Some(lease) = lease {
            let end = self.millis().checked_add(integer(lease)?).filter(|end| *end > self.millis());
            let invalid = || Value::error("ERR invalid expire time in 'set' command");
            ends = Some(end.ok_or_else(invalid)?);
        }
        let before = self.entry(&words[1]).map(|entry| entry.ends);
        if is_new && before.is_some() {
            return Ok(Value::Null);
        }
        if keeps_end {
            ends = before.flatten();
        }
        let content = Content::Text(words[2].clone());
        self.entries.insert(words[1].clone(), Entry { content, ends });
        Ok(Value::ok())
    }

    fn setrange(&mut self, words: &[Bytes]) -> Answer {
        let begin = usize::try_from(integer(&words[2])?)
            .map_err(|_| Value::error("ERR offset is out of range"))?;
        let (new, end) = (&words[3], begin.saturating_add(words[3].len()));
        let before = self.content(&words[1], Content::text)?.map(|text| text.len());
        if new.is_empty() {
            return Ok(Value::count(before.unwrap_or(0)));
        }
        let text = self.content_or(&words[1], Content::text, Content::Text(Bytes::new()))?;
        text.resize(text.len().max(end), 0);
        text[begin..end].copy_from_slice(new);
        Ok(Value::count(text.len()))
    }
}

/// Hashes.
impl Data {
    fn hdel(&mut self, words: &[Bytes]) -> Answer {
        let Some(hash) = self.content(&words[1], Content::hash)? else {
            return Ok(Value::count(0));
        };
        let removed = words[2..].iter().filter(|field| hash.remove(*field).is_some()).count();
        if hash.is_empty() {
            self.entries.remove(&words[1]);
        }
        Ok(Value::count(removed))
    }

    fn hget(&mut self, words: &[Bytes]) -> Answer {
        let value = self.content(&words[1], Content::hash)?.and_then(|hash| hash.get(&words[2]));
        Ok(value.map_or(Value::Null, Value::text))
    }

    fn hset(&mut self, words: &[Bytes]) -> Answer {
        let (pairs, rest) = words[2..].as_chunks::<2>();
        if !rest.is_empty() {
            return Err(Value::error(wrong_number("hset")));
        }
        let hash = self.content_or(&words[1], Content::hash, Content::Hash(BTreeMap::new()))?;
        let set =
            |[field, value]: &&[Bytes; 2]| hash.insert(field.clone(), value.clone()).is_none();
        Ok(Value::count(pairs.iter().filter(set).count()))
    }
}

/// Sorted sets.
impl Data {
    /// `ZADD key score member [score member ...]`.
    fn zadd(&mut self, words: &[Bytes]) -> Answer {
        let (pairs, rest) = words[2..].as_chunks::<2>();
        if !rest.is_empty() {
            return Err(Value::error(SYNTAX));
        }
        let score = |[score, member]: &[Bytes; 2]| Some((float(score)?, member.clone()));
        let pairs: Option<Vec<_>> = pairs.iter().map(score).collect();
        let pairs = pairs.ok_or_else(|| Value::error(FLOAT))?;
        let new = Content::SortedSet(Members::new());
        let members = self.content_or(&words[1], Content::members, new)?;
        let mut added = 0;
        for (score, member) in pairs {
            added += usize::from(!remove(members, &member));
            let is_before = |(other, name): &(f64, Bytes)| {
                other.total_cmp(&score).then_with(|| name.cmp(&member)).is_lt()
            };
            members.insert(members.partition_point(is_before), (score, member));
        }
        Ok(Value::count(added))
    }

    fn zcard(&mut self, words: &[Bytes]) -> Answer {
        Ok(Value::count(self.members(&words[1])?.len()))
    }

    fn zpopmin(&mut self, words: &[Bytes]) -> Answer {
        let first = self.members(&words[1])?.first().cloned();
        let Some((score, member)) = first else { return Ok(Value::Array(Vec::new())) };
        self.zrem(&[Bytes::new(), words[1].clone(), member.clone()])?;
        Ok(Value::Array(vec![Value::Text(member), Value::Score(score)]))
    }

    /// `ZRANGE key first last [WITHSCORES]`. Indices below zero count from the end.
    fn zrange(&mut self, words: &[Bytes]) -> Answer {
        let has_scores = match words.get(4) {
            Some(option) if option.eq_ignore_ascii_case(b"WITHSCORES") => true,
            Some(_) => return Err(Value::error(SYNTAX)),
            None => false,
        };
        let (first, last) = (integer(&words[2])?, integer(&words[3])?);
        let members = self.members(&words[1])?;
        let at = |index: i64| match usize::try_from(index) {
            Ok(index) => Some(index),
            Err(_) => members.len().checked_sub(usize::try_from(index.unsigned_abs()).ok()?),
        };
        let end = at(last).map_or(0, |last| last.saturating_add(1).min(members.len()));
        let found = members.get(at(first).unwrap_or(0)..end).unwrap_or_default();
        Ok(match has_scores {
            true => Value::Scored(found.to_vec()),
            false => Value::Array(found.iter().map(|(_, member)| Value::text(member)).collect()),
        })
    }

    /// `ZRANGEBYSCORE key least largest`.
    fn zrangebyscore(&mut self, words: &[Bytes]) -> Answer {
        let bound = |word: &Bytes| float(word).ok_or_else(|| Value::error(RANGE));
        let range = bound(&words[2])?..=bound(&words[3])?;
        let found = self.members(&words[1])?.iter().filter(|(score, _)| range.contains(score));
        Ok(Value::Array(found.map(|(_, member)| Value::text(member)).collect()))
    }

    fn zrank(&mut self, words: &[Bytes]) -> Answer {
        let rank = rank(self.members(&words[1])?, &words[2]);
        Ok(rank.map_or(Value::Null, Value::count))
    }

    fn zrem(&mut self, words: &[Bytes]) -> Answer {
        let Some(members) = self.content(&words[1], Content::members)? else {
            return Ok(Value::count(0));
        };
        let removed = words[2..].iter().filter(|member| remove(members, member)).count();
        if members.is_empty() {
            self.entries.remove(&words[1]);
        }
        Ok(Value::count(removed))
    }

    fn zscore(&mut self, words: &[Bytes]) -> Answer {
        let members = self.members(&words[1])?;
        let score = rank(members, &words[2]).map(|rank| members[rank].0);
        Ok(score.map_or(Value::Null, Value::Score))
    }
}

/// Commands without a key.
impl Data {
    fn ping(&mut self, words: &[Bytes]) -> Answer {
        Ok(words.get(1).map_or_else(|| Value::Status(b"PONG".to_vec()), Value::text))
    }

    fn publish(&mut self, is_sharded: bool, words: &[Bytes]) -> Answer {
        let name = if is_sharded { "smessage" } else { "message" };
        let message = [name.as_bytes(), &words[1], &words[2]].map(Value::text);
        let subscribers = self.channels.get(&(is_sharded, words[1].clone())).into_iter().flatten();
        let before = self.messages.len();
        self.messages.extend(subscribers.map(|to| (*to, Value::Push(message.to_vec()))));
        Ok(Value::count(self.messages.len() - before))
    }

    fn time(&mut self, _: &[Bytes]) -> Answer {
        let parts = [self.now / 1_000_000, self.now % 1_000_000];
        Ok(Value::Array(parts.map(|part| Value::text(part.to_string())).to_vec()))
    }
}

impl Content {
    fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "string",
            Self::Hash(_) => "hash",
            Self::SortedSet(_) => "zset",
        }
    }

    fn text(&mut self) -> Option<&mut Bytes> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    fn hash(&mut self) -> Option<&mut BTreeMap<Bytes, Bytes>> {
        if let Self::Hash(hash) = self { Some(hash) } else { None }
    }

    fn members(&mut self) -> Option<&mut Members> {
        if let Self::SortedSet(members) = self { Some(members) } else { None }
    }
}

fn rank(members: &[(f64, Bytes)], member: &[u8]) -> Option<usize> {
    members.iter().position(|(_, other)| other == member)
}

/// Returns whether the member was there.
fn remove(members: &mut Members, member: &[u8]) -> bool {
    rank(members, member).map(|rank| members.remove(rank)).is_some()
}

fn command(name: &[u8]) -> Option<&'static (&'static str, usize, usize, Command)> {
    COMMANDS.iter().find(|(other, ..)| name.eq_ignore_ascii_case(other.as_bytes()))
}

fn wrong_number(name: &str) -> String {
    format!("ERR wrong number of arguments for '{}' command", name.to_lowercase())
}

/// Reads an integer, of which there is one spelling.
pub(super) fn integer(word: &[u8]) -> Result<i64, Value> {
    let number = str::from_utf8(word).ok().and_then(|digits| digits.parse::<i64>().ok());
    let number = number.filter(|number| number.to_string().as_bytes() == word);
    number.ok_or_else(|| Value::error(INTEGER))
}

/// Reads a score.
fn float(word: &[u8]) -> Option<f64> {
    let number: f64 = str::from_utf8(word).ok()?.parse().ok()?;
    // The sum has no negative zero, which would come before zero in the order of scores.
    (!number.is_nan()).then_some(number + 0.0)
}

/// Returns the position of a key in the order of `SCAN`, which begins with 1: 32-bit FNV-1a.
fn position(key: &[u8]) -> u64 {
    let hash = key
        .iter()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    u64::from(hash) + 1
}

/// Returns whether a text has this pattern, in which `*`, `?` and `\` have a meaning.
pub(super) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    match pattern {
        [] => text.is_empty(),
        [b'*', rest @ ..] => (0..=text.len()).any(|begin| matches(rest, &text[begin..])),
        [b'?', rest @ ..] => !text.is_empty() && matches(rest, &text[1..]),
        [b'\\', byte, rest @ ..] | [byte, rest @ ..] => {
            text.first() == Some(byte) && matches(rest, &text[1..])
        }
    }
}
