//! The data of the server, and the commands on it.
//!
//! There is one database. A key expires by the clock of the server: it is removed when a command
//! finds it after its end. Each command takes the options that dlock uses, as dlock writes them.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    resp::{Bytes, Value, number_text},
    slots::bucket_in,
};

const SMALL_ID: &str =
    "ERR The ID specified in XADD is equal or smaller than the target stream top item";
const READ_ONLY: &str = "READONLY You can't write against a read only replica.";

type Command = fn(&mut Data, &[Bytes]) -> Value;
/// Members in the order of their scores. Sets are small here, so that a search costs little.
type Members = Vec<(f64, Bytes)>;
/// Each entry has an id, which is milliseconds and a sequence, and one field with its value.
type Entries = Vec<((u64, u64), [Bytes; 2])>;

/// The number of entries of a stream that are kept at least, and at most.
const ENTRIES: (usize, usize) = (100, 200);

/// The commands on data, and whether each writes, which a replica refuses.
const COMMANDS: [(&str, bool, Command); 24] = [
    ("DEL", true, Data::del),
    ("EXISTS", false, Data::exists),
    ("GET", false, Data::get),
    ("HDEL", true, Data::hdel),
    ("HGET", false, Data::hget),
    ("HSET", true, Data::hset),
    ("PEXPIRE", true, Data::pexpire),
    ("PING", false, |_, _| Value::Status(b"PONG".to_vec())),
    ("PTTL", false, Data::pttl),
    ("PUBLISH", false, |data, words| data.publish(false, words)),
    ("SET", true, Data::set),
    ("SETRANGE", true, Data::setrange),
    ("SPUBLISH", false, |data, words| data.publish(true, words)),
    ("TIME", false, |data, _| data.time()),
    ("XADD", true, Data::xadd),
    ("XREVRANGE", false, Data::xrevrange),
    ("ZADD", true, Data::zadd),
    ("ZCARD", false, Data::zcard),
    ("ZPOPMIN", true, Data::zpopmin),
    ("ZRANGE", false, Data::zrange),
    ("ZRANGEBYSCORE", false, Data::zrangebyscore),
    ("ZRANK", false, Data::zrank),
    ("ZREM", true, Data::zrem),
    ("ZSCORE", false, Data::zscore),
];

#[derive(Clone, Debug)]
enum Content {
    Text(Bytes),
    Hash(BTreeMap<Bytes, Bytes>),
    SortedSet(Members),
    Stream(Entries),
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
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
    /// Clients may not write.
    pub(super) is_replica: bool,
    /// There was a write since this was looked at.
    pub(super) has_written: bool,
    pub(super) entries: BTreeMap<Bytes, Entry>,
    /// Whether a channel is sharded, its name, and a connection that has subscribed to it.
    pub(super) subscriptions: BTreeSet<(bool, Bytes, u64)>,
}

impl Data {
    /// Executes a command of a client or of a script.
    pub(super) fn run(&mut self, words: &[Bytes]) -> Value {
        let (writes, run) = command(&words[0]);
        if writes && self.is_replica {
            return Value::error(READ_ONLY);
        }
        self.has_written |= writes;
        run(self, words)
    }

    pub(super) fn has(&mut self, key: &[u8]) -> bool {
        self.entry(key).is_some()
    }

    /// Adds a subscriber. Returns the number of its channels of this kind.
    pub(super) fn subscribe(&mut self, connection: u64, is_sharded: bool, channel: &[u8]) -> usize {
        self.subscriptions.insert((is_sharded, channel.to_vec(), connection));
        self.channels_of(connection, is_sharded)
    }

    fn channels_of(&self, connection: u64, is_sharded: bool) -> usize {
        let is_its =
            |(sharded, _, of): &&(bool, Bytes, u64)| (*sharded, *of) == (is_sharded, connection);
        self.subscriptions.iter().filter(is_its).count()
    }

    /// Ends the subscriptions to sharded channels of this bucket. Returns what each connection is
    /// told.
    pub(super) fn give_up(&mut self, bucket: usize) -> Vec<(u64, Value)> {
        let is_of_it = |(is_sharded, channel, _): &&(bool, Bytes, u64)| {
            *is_sharded && bucket_in(channel) == Some(bucket)
        };
        let ended: Vec<_> = self.subscriptions.iter().filter(is_of_it).cloned().collect();
        let end = |subscription: (bool, Bytes, u64)| {
            self.subscriptions.remove(&subscription);
            let (_, channel, connection) = subscription;
            (connection, notice("sunsubscribe", &channel, self.channels_of(connection, true)))
        };
        ended.into_iter().map(end).collect()
    }

    /// Removes all connections, and the keys unless they are kept.
    pub(super) fn restart(&mut self, keeps_keys: bool) {
        self.subscriptions.clear();
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
                Content::Stream(entries) => {
                    entries.iter().for_each(|(id, [_, value])| add(id_text(*id).as_bytes(), value))
                }
            }
        }
        lines
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

    fn content(&mut self, key: &[u8], new: Content) -> &mut Content {
        self.entry(key);
        let entry = self.entries.entry(key.to_vec());
        &mut entry.or_insert(Entry { content: new, ends: None }).content
    }

    /// Returns a text, or an empty one.
    fn text(&mut self, key: &[u8]) -> &mut Bytes {
        match self.content(key, Content::Text(Bytes::new())) {
            Content::Text(text) => text,
            other => panic!("not a text: {other:?}"),
        }
    }

    /// Reads or changes a hash. An empty one does not exist.
    fn hash<T>(&mut self, key: &[u8], work: impl FnOnce(&mut BTreeMap<Bytes, Bytes>) -> T) -> T {
        let (done, is_empty) = match self.content(key, Content::Hash(BTreeMap::new())) {
            Content::Hash(hash) => (work(hash), hash.is_empty()),
            other => panic!("not a hash: {other:?}"),
        };
        if is_empty {
            self.entries.remove(key);
        }
        done
    }

    /// Reads or changes the members of a sorted set. An empty one does not exist.
    fn members<T>(&mut self, key: &[u8], work: impl FnOnce(&mut Members) -> T) -> T {
        let (done, is_empty) = match self.content(key, Content::SortedSet(Members::new())) {
            Content::SortedSet(members) => (work(members), members.is_empty()),
            other => panic!("not a sorted set: {other:?}"),
        };
        if is_empty {
            self.entries.remove(key);
        }
        done
    }
}

/// Keys.
impl Data {
    fn del(&mut self, words: &[Bytes]) -> Value {
        let remove =
            |key: &&Bytes| self.entry(key).is_some() && self.entries.remove(*key).is_some();
        Value::count(words[1..].iter().filter(remove).count())
    }

    fn exists(&mut self, words: &[Bytes]) -> Value {
        Value::count(words[1..].iter().filter(|key| self.entry(key).is_some()).count())
    }

    /// `PEXPIRE key ms [GT | LT]`.
    fn pexpire(&mut self, words: &[Bytes]) -> Value {
        let has = |option: &[u8]| words.get(3).is_some_and(|word| word == option);
        let now = self.millis();
        let ends = now + integer(&words[2]);
        let Some(entry) = self.entry(&words[1]) else { return Value::count(0) };
        let before = entry.ends;
        // A key without an end ends later than any other.
        if has(b"GT") && before.is_none_or(|before| ends <= before)
            || has(b"LT") && before.is_some_and(|before| ends >= before)
        {
            return Value::count(0);
        }
        entry.ends = Some(ends);
        if ends <= now {
            self.entries.remove(&words[1]);
        }
        Value::count(1)
    }

    fn pttl(&mut self, words: &[Bytes]) -> Value {
        let now = self.millis();
        let entry = self.entry(&words[1]);
        Value::Integer(entry.map_or(-2, |entry| entry.ends.map_or(-1, |ends| ends - now)))
    }
}

/// Texts.
impl Data {
    fn get(&mut self, words: &[Bytes]) -> Value {
        match self.has(&words[1]) {
            true => Value::text(self.text(&words[1])),
            false => Value::Null,
        }
    }

    /// `SET key text [NX] [GET] [PX ms | PXAT ms | KEEPTTL]`.
    fn set(&mut self, words: &[Bytes]) -> Value {
        let has = |option: &[u8]| words[3..].iter().any(|word| word == option);
        let before = self.entry(&words[1]).map(|entry| entry.ends);
        let gets = has(b"GET");
        let text = if gets { self.get(words) } else { Value::Null };
        if has(b"NX") && before.is_some() {
            return text;
        }
        let time = |now| Some(now + integer(&words[words.len() - 1]));
        let ends = match (has(b"PX"), has(b"PXAT")) {
            (true, _) => time(self.millis()),
            (_, true) => time(0),
            _ => before.flatten().filter(|_| has(b"KEEPTTL")),
        };
        let content = Content::Text(words[2].clone());
        self.entries.insert(words[1].clone(), Entry { content, ends });
        if gets { text } else { Value::ok() }
    }

    /// `SETRANGE key begin text`, with a text that is not empty.
    fn setrange(&mut self, words: &[Bytes]) -> Value {
        let begin = usize::try_from(integer(&words[2])).expect("a text begins at 0");
        let end = begin + words[3].len();
        let text = self.text(&words[1]);
        text.resize(text.len().max(end), 0);
        text[begin..end].copy_from_slice(&words[3]);
        Value::count(text.len())
    }
}

/// Streams.
impl Data {
    fn entries(&mut self, key: &[u8]) -> Option<&mut Entries> {
        match &mut self.entry(key)?.content {
            Content::Stream(entries) => Some(entries),
            other => panic!("not a stream: {other:?}"),
        }
    }

    /// `XADD key [MAXLEN ~ length] (id | *) field value`.
    fn xadd(&mut self, words: &[Bytes]) -> Value {
        let millis = self.now / 1000;
        let [.., id, field, value] = words else { panic!("an entry has one field: {words:?}") };
        let last = self.entries(&words[1]).and_then(|entries| entries.last()).map(|(id, _)| *id);
        let last = last.unwrap_or((0, 0));
        let id = match id.as_slice() {
            b"*" if millis > last.0 => (millis, 0),
            b"*" => (last.0, last.1 + 1),
            text => id_of(text),
        };
        if id <= last {
            return Value::error(SMALL_ID);
        }
        let content = self.content(&words[1], Content::Stream(Vec::new()));
        let Content::Stream(entries) = content else { panic!("not a stream: {content:?}") };
        entries.push((id, [field, value].map(Clone::clone)));
        if words[2] == *b"MAXLEN" && entries.len() > ENTRIES.1 {
            entries.drain(..ENTRIES.0);
        }
        Value::text(id_text(id))
    }

    /// `XREVRANGE key + - COUNT count`.
    fn xrevrange(&mut self, words: &[Bytes]) -> Value {
        let count = usize::try_from(integer(&words[5])).expect("a count is positive");
        let entry = |((millis, sequence), [field, value]): &((u64, u64), [Bytes; 2])| {
            let fields = Value::Array([field, value].map(Value::text).to_vec());
            Value::Array(vec![Value::text(id_text((*millis, *sequence))), fields])
        };
        let entries = self.entries(&words[1]);
        let last = entries.map(|entries| entries.iter().rev().take(count).map(entry).collect());
        Value::Array(last.unwrap_or_default())
    }
}

/// Hashes.
impl Data {
    fn hdel(&mut self, words: &[Bytes]) -> Value {
        self.hash(&words[1], |hash| {
            Value::count(words[2..].iter().filter(|field| hash.remove(*field).is_some()).count())
        })
    }

    fn hget(&mut self, words: &[Bytes]) -> Value {
        self.hash(&words[1], |hash| hash.get(&words[2]).map_or(Value::Null, Value::text))
    }

    fn hset(&mut self, words: &[Bytes]) -> Value {
        let (pairs, _) = words[2..].as_chunks::<2>();
        self.hash(&words[1], |hash| {
            let set =
                |[field, value]: &&[Bytes; 2]| hash.insert(field.clone(), value.clone()).is_none();
            Value::count(pairs.iter().filter(set).count())
        })
    }
}

/// Sorted sets.
impl Data {
    /// `ZADD key score member`.
    fn zadd(&mut self, words: &[Bytes]) -> Value {
        let (score, member) = (score(&words[2]), words[3].clone());
        self.members(&words[1], |members| {
            let is_new = !remove(members, &member);
            let is_before = |(other, name): &(f64, Bytes)| {
                other.total_cmp(&score).then_with(|| name.cmp(&member)).is_lt()
            };
            members.insert(members.partition_point(is_before), (score, member));
            Value::Integer(is_new.into())
        })
    }

    fn zcard(&mut self, words: &[Bytes]) -> Value {
        self.members(&words[1], |members| Value::count(members.len()))
    }

    fn zpopmin(&mut self, words: &[Bytes]) -> Value {
        self.members(&words[1], |members| match members.is_empty() {
            true => Value::Array(Vec::new()),
            false => {
                let (score, member) = members.remove(0);
                Value::Array(vec![Value::Text(member), Value::Score(score)])
            }
        })
    }

    /// `ZRANGE key first last [WITHSCORES]`. Indices below zero count from the end.
    fn zrange(&mut self, words: &[Bytes]) -> Value {
        let (first, last) = (integer(&words[2]), integer(&words[3]));
        self.members(&words[1], |members| {
            let at = |index: i64| match usize::try_from(index) {
                Ok(index) => Some(index),
                Err(_) => members.len().checked_sub(usize::try_from(index.unsigned_abs()).ok()?),
            };
            let end = at(last).map_or(0, |last| last.saturating_add(1).min(members.len()));
            let found = members.get(at(first).unwrap_or(0)..end).unwrap_or_default();
            match words.len() > 4 {
                true => Value::Scored(found.to_vec()),
                false => names(found.iter()),
            }
        })
    }

    /// `ZRANGEBYSCORE key least largest`.
    fn zrangebyscore(&mut self, words: &[Bytes]) -> Value {
        let range = score(&words[2])..=score(&words[3]);
        self.members(&words[1], |members| {
            names(members.iter().filter(|(score, _)| range.contains(score)))
        })
    }

    fn zrank(&mut self, words: &[Bytes]) -> Value {
        self.members(&words[1], |members| {
            rank(members, &words[2]).map_or(Value::Null, Value::count)
        })
    }

    fn zrem(&mut self, words: &[Bytes]) -> Value {
        self.members(&words[1], |members| {
            Value::count(words[2..].iter().filter(|member| remove(members, member)).count())
        })
    }

    fn zscore(&mut self, words: &[Bytes]) -> Value {
        self.members(&words[1], |members| {
            rank(members, &words[2]).map_or(Value::Null, |rank| Value::Score(members[rank].0))
        })
    }
}

/// Commands without a key.
impl Data {
    fn publish(&mut self, is_sharded: bool, words: &[Bytes]) -> Value {
        let name = if is_sharded { "smessage" } else { "message" };
        let message = [name.as_bytes(), &words[1], &words[2]].map(Value::text);
        let before = self.messages.len();
        for (sharded, channel, to) in &self.subscriptions {
            if (*sharded, channel) == (is_sharded, &words[1]) {
                self.messages.push((*to, Value::Push(message.to_vec())));
            }
        }
        Value::count(self.messages.len() - before)
    }

    fn time(&mut self) -> Value {
        let parts = [self.now / 1_000_000, self.now % 1_000_000];
        Value::Array(parts.map(|part| Value::text(part.to_string())).to_vec())
    }
}

/// Returns members without their scores.
fn names<'a>(members: impl Iterator<Item = &'a (f64, Bytes)>) -> Value {
    Value::Array(members.map(|(_, member)| Value::text(member)).collect())
}

/// The answer to a subscription or to its end, with the number of those that are left.
pub(super) fn notice(verb: &str, channel: &[u8], left: usize) -> Value {
    Value::Push(vec![Value::text(verb), Value::text(channel), Value::count(left)])
}

fn rank(members: &[(f64, Bytes)], member: &[u8]) -> Option<usize> {
    members.iter().position(|(_, other)| other == member)
}

/// Returns whether the member was there.
fn remove(members: &mut Members, member: &[u8]) -> bool {
    rank(members, member).map(|rank| members.remove(rank)).is_some()
}

/// Returns the command with this name, and whether it writes.
fn command(name: &[u8]) -> (bool, Command) {
    let found = COMMANDS.iter().find(|(other, ..)| name.eq_ignore_ascii_case(other.as_bytes()));
    let (_, writes, run) = found.expect("dlock sends commands that are simulated");
    (*writes, *run)
}

pub(super) fn integer(word: &[u8]) -> i64 {
    let number = str::from_utf8(word).ok().and_then(|digits| digits.parse().ok());
    number.expect("dlock sends an integer")
}

fn id_text((millis, sequence): (u64, u64)) -> String {
    format!("{millis}-{sequence}")
}

fn id_of(word: &[u8]) -> (u64, u64) {
    let id = str::from_utf8(word).ok().and_then(|text| text.split_once('-'));
    let id = id.and_then(|(millis, sequence)| Some((millis.parse().ok()?, sequence.parse().ok()?)));
    id.expect("dlock sends an id")
}

fn score(word: &[u8]) -> f64 {
    let number = str::from_utf8(word).ok().and_then(|digits| digits.parse::<f64>().ok());
    // The sum has no negative zero, which would come before zero in the order of scores.
    number.expect("dlock sends a number") + 0.0
}
