//! The server in memory and a real one get the same commands at the same times of their clocks, which
//! stand still between two steps. They have to send the same bytes, and to have the same data.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use dlock_testlab::{
    SteppedClock, Stop, Verdict,
    client::run_on_threads,
    redis::{Options, Persistence, RedisServer},
};
use proptest::{collection::vec, prelude::*, test_runner::TestRunner};

use super::*;

/// The time at the begin of each case, in microseconds.
const BEGIN: u64 = 1_700_000_000_000_000;

/// The last bytes of each answer.
const MARK: &[u8] = b"$11\r\nend of step\r\n";

/// Returns the data of a real server in the form of [`Data::lines`].
const LINES: &str = "
local lines={}
for _,key in ipairs(redis.call('KEYS','*')) do
  local head=key..' ('..string.format('%.0f',redis.call('PTTL',key))..' ms): '
  local kind=redis.call('TYPE',key).ok
  local all=kind=='string' and {'=',redis.call('GET',key)}
    or kind=='hash' and redis.call('HGETALL',key) or redis.call('ZRANGE',key,0,-1,'WITHSCORES')
  for i=1,#all,2 do lines[#lines+1]=head..all[i]..' '..all[i+1] end
end
return lines";

macro_rules! scripts {
    ($($name:literal)*) => {
        [$(include_str!(concat!("../../../../dlock-redis/src/scripts/", $name, ".lua"))),*]
    };
}

/// Both servers, with two connections to each.
struct Both {
    fake: Redis,
    /// Each connection to the real server, with its number.
    real: [(u64, TcpStream); 2],
    clock: SteppedClock,
    now: u64,
}

impl Both {
    fn connect(server: &RedisServer, clock: SteppedClock) -> Self {
        let real = [(); 2].map(|()| {
            let stream = TcpStream::connect(server.address()).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            stream.set_nodelay(true).unwrap();
            (0, stream)
        });
        let mut both = Self { fake: Redis::new(1), real, clock, now: 0 };
        for at in 0..2 {
            both.ask(at, &["HELLO", "3"]);
            let id = text(both.ask(at, &["CLIENT", "ID"]));
            both.real[at].0 = id.trim_matches([':', '\\', 'r', 'n']).parse().unwrap();
        }
        both
    }

    /// Removes all data and subscriptions.
    fn clear(&mut self) {
        self.ask(0, &["FLUSHALL"]);
        self.fake.data.borrow_mut().restart(false);
        for at in 0..2 {
            self.ask(at, &["UNSUBSCRIBE"]);
            self.ask(at, &["SUNSUBSCRIBE"]);
        }
        self.go_to(BEGIN);
    }

    fn go_to(&mut self, now: u64) {
        self.now = now;
        self.clock.stop_at(Duration::from_micros(now)).unwrap();
    }

    /// Sends a command to the real server, or none. Returns what it has sent by the answer.
    fn ask<T: AsRef<[u8]>>(&mut self, at: usize, words: &[T]) -> Bytes {
        let stream = &mut self.real[at].1;
        stream.write_all(&[encoded(words), encoded(&["ECHO", "end of step"])].concat()).unwrap();
        let (mut answer, mut part) = (Bytes::new(), [0; 4096]);
        while !answer.ends_with(MARK) {
            let read = stream.read(&mut part).unwrap();
            assert_ne!(read, 0, "the server has closed the connection");
            answer.extend_from_slice(&part[..read]);
        }
        answer.truncate(answer.len() - MARK.len());
        answer
    }

    fn compare<T: AsRef<[u8]>>(&mut self, words: &[T]) -> Result<(), TestCaseError> {
        self.compare_on(0, words)
    }

    /// Sends a command to both servers. Compares what they send on both connections, and their data.
    fn compare_on<T: AsRef<[u8]>>(&mut self, at: usize, words: &[T]) -> Result<(), TestCaseError> {
        let (one, other) = (self.ask(at, words), self.ask::<T>(1 - at, &[]));
        let real = if at == 0 { [one, other] } else { [other, one] };
        let ids = self.real.each_ref().map(|(id, _)| *id);
        let sent = self.fake.receive(ids[at], &encoded(words), self.now);
        let fake = ids.map(|id| {
            let to_it = sent.iter().filter(|(to, _)| *to == id).map(|(_, bytes)| bytes.as_slice());
            to_it.collect::<Vec<_>>().concat()
        });
        let word = |word: &T| word.as_ref().escape_ascii().to_string();
        let command = Vec::from_iter(words.iter().map(word)).join(" ");
        prop_assert_eq!(fake.map(text), real.map(text), "{}", command);
        let real = next_command(&mut self.ask(0, &["EVAL", LINES, "0"])).unwrap();
        let fake = self.fake.data.borrow_mut().lines();
        let [real, fake] = [real, fake].map(|lines| {
            let mut lines = Vec::from_iter(lines.into_iter().map(text));
            lines.sort();
            lines
        });
        prop_assert_eq!(fake, real, "{}", command);
        Ok(())
    }
}

/// Runs a test with a real server.
fn with_server(persistence: Persistence, test: impl FnOnce(Both) -> Verdict) {
    run_on_threads("redis", async {
        let clock = SteppedClock::start().await?;
        let options = Options::new().with_clock(&clock).with_persistence(persistence);
        let server = RedisServer::start(&options).await?;
        let mut both = Both::connect(&server, clock);
        match text(both.ask(0, &["INFO", "server"])).contains("redis_version:7.0.") {
            true => test(both),
            false => Err(Stop::undecided("the real server is not Redis 7.0")),
        }
    });
}

/// Runs a test on random lists of bytes, from which it makes its commands.
fn explore<const N: usize>(
    cases: u32,
    steps: usize,
    mut test: impl FnMut(&[[u8; N]]) -> Result<(), TestCaseError>,
) -> Verdict {
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let test = RefCell::new(&mut test);
    let step = vec(any::<u8>(), N).prop_map(|bytes| <[u8; N]>::try_from(bytes).unwrap());
    let run = |steps: Vec<[u8; N]>| (test.borrow_mut())(&steps);
    TestRunner::new(config).run(&vec(step, 1..steps), run).map_err(Stop::failed)
}

fn encoded<T: AsRef<[u8]>>(words: &[T]) -> Bytes {
    let mut bytes = Bytes::new();
    if !words.is_empty() {
        Value::Array(words.iter().map(Value::text).collect()).write(&mut bytes);
    }
    bytes
}

fn text(bytes: Bytes) -> String {
    bytes.escape_ascii().to_string()
}

/// Returns the words of a text, which semicolons separate.
fn parts(text: impl AsRef<str>) -> Vec<String> {
    text.as_ref().split(';').map(str::to_owned).collect()
}

fn pick<T: Clone>(of: &[T], byte: u8) -> T {
    of[usize::from(byte) % of.len()].clone()
}

/// Picks one of the rare values for one byte in 32.
fn mostly<T: Clone>(common: &[T], rare: &[T], byte: u8) -> T {
    pick(if byte < 248 { common } else { rare }, byte)
}

/// Returns a pause between two steps, in microseconds.
fn pause(byte: u8) -> u64 {
    let short = [0, 0, 0, 1, 5, 400, 999, 1000, 1001, 7000, 19_500];
    mostly(&short, &[200_000, 1_000_500, 29_000_000, 61_000_000], byte)
}

const CLAIMS: [&str; 4] = [
    "00000000000000000000000000000001",
    "00000000000000000000000000000002",
    "00000000000000000000000000000003",
    "abcdefabcdefabcdefabcdefabcdefab",
];
const CHANNELS: [&str; 5] = ["", "c", "!c", "nobody", "{0}s"];
/// In milliseconds.
const LEASES: [&str; 8] = ["30001", "60001", "1001", "30001", "60001", "20", "30001", "1"];
/// Weights and capacities: some of one capacity, some of another, and of a third.
const MODES: [[&str; 2]; 6] =
    [["1073741824"; 2], ["1", "1073741824"], ["1", "3"], ["2", "3"], ["3", "3"], ["1", "2"]];

/// Returns the keys of a name.
fn keys(name: &str) -> Vec<String> {
    ["", "f", "q", "w", "r"].map(|kind| format!("dlock:{{0}}{kind}:{name}")).to_vec()
}

/// Returns a command of dlock, or of another program.
fn step(bytes: [u8; 13], now: u64, digests: &[String]) -> Vec<String> {
    let [verb, name, claim, other, lease, mode, tokens, flag, channel, extra, late, more, _] =
        bytes;
    let [name, second] = if name % 8 == 7 { ["b", "a"] } else { ["a", "b"] };
    let [claim, other] = [claim, other].map(|byte| pick(&CLAIMS, byte));
    let [lease, second_lease] = [lease, more].map(|byte| pick(&LEASES, byte));
    let mode_of = |name, byte| {
        let [weight, capacity] =
            mostly(if name == "a" { &MODES[..2] } else { &MODES[2..5] }, &MODES, byte);
        format!("{weight};{capacity}")
    };
    let (mode, second_mode) = (mode_of(name, mode), mode_of(second, more));
    let tokens = mostly(&["1", "1", "3"], &["4503599627370496"], tokens);
    let channel = pick(&CHANNELS, channel);
    let retention = pick(&["60000", "1", "3600000"], extra);
    let leaves = if flag % 4 == 2 { "1" } else { "0" };
    let sign = |byte| if byte % 4 == 3 { "-" } else { "" };
    let (sign, second_sign) = (sign(flag), sign(extra));
    let note = mostly(&["", "a note"], &["\u{1}2 new"], more);
    let deadline = if late % 8 == 7 { now - 1 } else { now + 1_000_000 };
    let frozen = if late % 8 == 6 { ";1" } else { "" };
    let plain = vec!["plain".to_owned()];
    let (of_name, of_both) = (keys(name), [keys(name), keys(second)].concat());
    let call = |script: usize, keys: &[String], arguments: String| {
        let head = vec!["EVALSHA".to_owned(), digests[script].clone(), keys.len().to_string()];
        let arguments = if arguments.is_empty() { Vec::new() } else { parts(arguments) };
        [head, keys.to_vec(), arguments].concat()
    };
    match verb {
        0..8 => {
            let proposal = mostly(&[0, 0, now, now + 5_000_000], &[(1 << 53) - 3], extra);
            let note = if note.is_empty() { String::new() } else { format!("{note};") };
            let head = format!("{claim};{lease};{mode};{tokens};{leaves};{channel};{retention}");
            call(0, &of_name, format!("{head};{proposal};{note}{deadline}"))
        }
        8 => {
            let one = format!("{claim};{lease};{mode};{tokens};{leaves};{channel};{note}");
            let two = format!("{other};{second_lease};{second_mode};1;{leaves};{channel};{note}");
            call(1, &of_both, format!("{retention};{one};{two};{deadline}"))
        }
        9 => call(2, &plain, format!("{claim};{lease};{deadline}")),
        10 | 11 => call(3, &of_name, String::new()),
        12 => {
            let unused = keys("?probe");
            let keys = pick(&[&unused[..], &unused[..1], &[]], extra);
            call(4, keys, format!("{channel};{}", unused[0]))
        }
        13 => {
            let token = now - 1000 * u64::from(extra);
            call(5, &of_name, format!("{claim};{token};{tokens};{retention}"))
        }
        14 => {
            let above = mostly(&[now, 1], &[(1 << 53) - 2], extra);
            call(6, &of_name, format!("{above};{retention}"))
        }
        15..19 => {
            let used = pick(&["1", "0", "2"], extra);
            call(7, &of_name, format!("{claim};{used};{retention}{frozen}"))
        }
        19 => call(8, &plain, claim.to_owned()),
        20 | 21 => call(9, &of_name, format!("{retention};{claim};{sign}{lease};{mode}{frozen}")),
        22 | 23 => {
            let one = format!("{claim};{sign}{lease};{mode}");
            let two = format!("{other};{second_sign}{second_lease};{second_mode}");
            call(9, &of_both, format!("{retention};{one};{two}{frozen}"))
        }
        24 | 25 => {
            let claims = format!("{claim};{sign}{lease};{other};{second_sign}{second_lease}");
            let [holder, last] = [&of_name[..1], &of_name[1..2]];
            let keys = [holder, &plain, last, last].concat();
            match extra % 3 {
                0 => call(10, &keys[..2], format!("{claims};0")),
                _ => call(10, &keys, format!("{claims};{retention}")),
            }
        }
        26 => parts(format!("SUBSCRIBE;{}", pick(&["c", "d"], more))),
        27 => parts("UNSUBSCRIBE;c"),
        _ => foreign(&of_name, extra, claim, now),
    }
}

/// Returns a command of another program, or of another version.
fn foreign(keys: &[String], extra: u8, claim: &str, now: u64) -> Vec<String> {
    let [holder, last, queue, waiters, readers] = keys else { panic!("{keys:?}") };
    let any = pick(keys, extra / 32);
    let (soon, late, record) = (now + 1000, now + 9_000_000, format!("{claim}!{now}"));
    let waiter = format!("1:3:1:1000:{late}:c");
    parts(match extra % 24 {
        0 => format!("DEL;{any}"),
        1 => format!("PEXPIRE;{any};1"),
        2 => format!("SET;{any};x"),
        3 => format!("HSET;{any};{claim};x"),
        4 => format!("ZADD;{any};1;{claim}"),
        5 => format!("SET;{holder};{record} \u{1}7 x;PX;5000"),
        6 => format!("SET;{holder};{record};PX;5000"),
        7 => format!("SET;{holder};{record}*;PX;5000"),
        8 => format!("SET;{holder};{claim};PX;5000"),
        9 => format!("SET;{last};9007199254740990;PX;5000"),
        10 => format!("SET;{last};9007199254740993q;PX;5000"),
        11 => format!("SET;{last};{soon}q;PX;900000"),
        12 => format!("HSET;{waiters};#;3:1"),
        13 => format!("HSET;{waiters};#;junk"),
        14 => format!("HSET;{waiters};{claim};{waiter}"),
        15 => format!("HSET;{waiters};{claim};{waiter} \u{1}8"),
        16 => format!("HSET;{waiters};{claim};junk\r\n"),
        17 => format!("HDEL;{waiters};{claim};#"),
        18 => format!("ZADD;{queue};7;{claim}"),
        19 => format!("ZADD;{readers};{late};{claim}"),
        20 => format!("ZADD;{queue};1.5;\u{1}foreign\n"),
        21 => format!("ZREM;{queue};{claim}"),
        22 => format!("HSET;{waiters};\u{1}foreign\n;junk"),
        _ => format!("SETRANGE;{any};3;z"),
    })
}

#[test]
fn the_scripts_of_dlock_do_the_same_on_a_real_server() {
    let [lock, formats] = scripts!["lock" "formats"];
    let scripts = scripts![
        "acquire" "acquire_all" "acquire_plain" "inspect" "preflight" "quorum_token" "raise_tokens"
        "release" "release_plain" "renew" "renew_exclusive"
    ];
    with_server(Persistence::None, |mut both| {
        let mut digests = Vec::new();
        for script in scripts {
            let script = script.replace("--%lock\n", lock).replace("--%formats\n", formats);
            both.compare(&["SCRIPT", "LOAD", &script])?;
            digests.push(sha1_smol::Sha1::from(script).digest().to_string());
        }
        explore(400, 80, |steps| {
            both.clear();
            both.compare_on(0, &["SSUBSCRIBE", "{0}s"])?;
            both.compare_on(1, &["SUBSCRIBE", "c", "d"])?;
            // In half of the cases, no other program writes into the keys.
            let verbs = if steps[0][12] % 32 < 16 { 28 } else { 29 };
            for bytes in steps {
                let mut bytes = *bytes;
                bytes[0] %= verbs;
                both.go_to(both.now + pause(bytes[12]));
                both.compare_on(usize::from(bytes[10] % 2), &step(bytes, both.now, &digests))?;
            }
            Ok(())
        })
    });
}

/// The commands, with the kinds of their arguments.
const COMMANDS: &str = "DEL k,DEL k k,EXISTS k,EXISTS k k k,GET k,HDEL k m,HDEL k m m,HGET k m,\
    HSET k m m,HSET k m m m m,HSET k m m m,PEXPIRE k l,PEXPIRE k l,PEXPIRE k l o,PEXPIRE k l o,PEXPIRE k l o,PTTL k,SET k m,SET k m x,\
    SET k m x l,SET k m x l x,set k m x x l,SET k i,SETRANGE k i m,ZADD k s m,ZADD k s m s m,\
    zadd k s m s,ZCARD k,ZPOPMIN k,ZRANGE k i i,ZRANGE k i i w,ZRANGEBYSCORE k s s,ZRANK k m,\
    ZREM k m,ZREM k m m,ZSCORE k m,PUBLISH c m,SPUBLISH c m,PING,PING m,TIME,SUBSCRIBE c,\
    UNSUBSCRIBE c,SSUBSCRIBE c c,SUNSUBSCRIBE c,NONE k,GET,TIME k";

/// Returns an argument: a key, a member, an index, a score, a lease, an option or a channel.
fn argument(kind: &str, byte: u8) -> &'static [u8] {
    let among: &[&str] = match kind {
        "k" => &["a", "b", "c"],
        "m" => &["x", "y", "z", "", "1", "\r\n", "\u{ff}\0"],
        "i" => &["0", "1", "-1", "2", "-2", "-100", "100", "x", "007", "+1", "", "1.5"],
        "s" => &["1", "2", "0", "-0", "-1.5", "3e2", "1e17", "-inf", "inf", "0.1", "nan", "x"],
        "l" => &["1000", "5", "1000", "1", "1000", "0", "-1", "x", "", "9223372036854775807"],
        "o" => &["GT", "lt", "gt", "LT", "other"],
        "x" => &["NX", "PX", "px", "KEEPTTL", "other"],
        "w" => &["WITHSCORES", "withscores", "other"],
        _ => &["c", "d"],
    };
    pick(among, byte).as_bytes()
}

/// Scripts that call a command. They return the answer, its error, and its types in Lua.
const CALLS: [&str; 4] = [
    "return redis.call(unpack(ARGV))",
    "local answer=redis.call(unpack(ARGV))\nreturn answer",
    "return {redis.pcall(unpack(ARGV)),7}",
    "local a=redis.pcall(unpack(ARGV)) local t=type(a)=='table'
    return {type(a),t and (a.ok or a.err or #a) or tostring(a),t and type(a[1]) or 0}",
];

#[test]
fn each_command_does_the_same_on_a_real_server() {
    let commands: Vec<&str> = COMMANDS.split(',').collect();
    with_server(Persistence::None, |mut both| {
        explore(1000, 60, |steps: &[[u8; 9]]| {
            both.clear();
            for [command, call, after, arguments @ ..] in steps {
                both.go_to(both.now + pause(*after));
                let (name, kinds) =
                    pick(&commands, *command).split_once(' ').unwrap_or(("PING", ""));
                let kinds = kinds.split(' ').filter(|kind| !kind.is_empty());
                let words = kinds.zip(arguments).map(|(kind, byte)| argument(kind, *byte));
                let words: Vec<&[u8]> = [name.as_bytes()].into_iter().chain(words).collect();
                match CALLS.get(usize::from(call % 8)).filter(|_| !name.ends_with("SUBSCRIBE")) {
                    Some(script) => {
                        both.compare(&[&[b"EVAL", script.as_bytes(), b"0"], &*words].concat())?;
                    }
                    None => both.compare(&words)?,
                }
            }
            Ok(())
        })
    });
}

#[test]
fn numbers_are_written_as_on_a_real_server() {
    let script = "local n=ARGV[1]+0 return {redis.call('PING',n),n}";
    with_server(Persistence::None, |mut both| {
        explore(400, 2, |all: &[[u8; 8]]| {
            let any = f64::from_bits(u64::from_le_bytes(all[0]));
            let simple = f64::from(i32::from_le_bytes(*all[0].first_chunk().unwrap())) / 1024.0;
            for number in [any, simple, simple * 1e17].iter().filter(|number| !number.is_nan()) {
                let number = format!("{number:e}");
                both.compare(&["EVAL", script, "0", &number])?;
                both.compare(&["ZADD", "z", &number, "m"])?;
                both.compare(&["ZSCORE", "z", "m"])?;
            }
            Ok(())
        })
    });
}

#[test]
fn scripts_answer_and_fail_as_on_a_real_server() {
    const SCRIPTS: [&str; 33] = [
        "return",
        "return 1,2",
        "return {1,2.7,-2.7,1/0,nil,3}",
        "return {true,false,{err='X y'},{ok='fine'}}",
        "return {0/0,2^53,-2^63,1e300}",
        "return {err='a\\nb\\n'}",
        "return {ok='a\\nb\\n'}",
        "return {{},{{}},''}",
        "return redis.error_reply('DLOCK')",
        "return redis.error_reply('-DLOCK a')",
        "return redis.error_reply(1)",
        "return redis.error_reply('a b\\n')",
        "error('a\\nb\\n')",
        "error('a',0)",
        "error()",
        "error({err='DLOCK x'})",
        "local x\nreturn x.y",
        "return x +",
        "return x",
        "x=1",
        "return redis.call()",
        "return redis.pcall()",
        "return redis.call({})",
        "return redis.pcall('PING',true)",
        "return string.rep(nil)",
        "local function f() return redis.call('HGET','s','a') end\nredis.call('SET','s',1)\nreturn f()",
        "local function g(x) return x.y end\nlocal function f() return g(nil) end\nreturn f()",
        "redis.call('SET','s',1) return {pcall(redis.call,'HGET','s','a')}",
        "return {pcall(error,{err='a'})}",
        "return {pcall(error,'a')}",
        "return {pcall(function() local x=nil+1 end)}",
        "return {select('#',pcall(error)),pcall(function() return 1,2 end)}",
        "redis.call('PUBLISH','c',1) redis.call('SPUBLISH','c',2) return {#KEYS,KEYS[1],ARGV[2]}",
    ];
    with_server(Persistence::None, |mut both| {
        both.clear();
        both.compare(&["SUBSCRIBE", "c", "d", "c"])?;
        both.compare(&["SSUBSCRIBE", "c"])?;
        for text in SCRIPTS {
            both.compare(&["EVAL", text, "1", "key", "argument"])?;
        }
        Ok(())
    });
}

#[test]
fn connections_and_settings_answer_as_on_a_real_server() {
    const DIGEST: &str = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
    const COMMANDS: &str = "HELLO 4,CLIENT ID,CLIENT SETNAME a,CLIENT SETINFO LIB-NAME dlock,\
        client foo,SELECT 0,SELECT 99,SELECT x,CONFIG GET *appendfsync,CONFIG GET no?append*-*,CONFIG GET nothing,\
        CONFIG GET timeout,CONFIG GET tcp-keepalive,CONFIG GET min-replicas-to-write,config foo,\
        WAIT 0 1,NONE,none a b,GET,get a b,EVALSHA short 0,EVAL return1 x,EVAL return 2 a,\
        EVAL return -1 a,SCRIPT FOO,SCRIPT FLUSH,SCRIPT LOAD return+,UNSUBSCRIBE,SUNSUBSCRIBE,\
        UNSUBSCRIBE a b,SCAN x,SCAN 0 MATCH,SCAN 0 COUNT 0,SCAN 0 COUNT x";
    with_server(Persistence::AofAlways, |mut both| {
        both.clear();
        for command in COMMANDS.split(',') {
            both.compare(&Vec::from_iter(command.split(' ')))?;
        }
        both.compare(&["EVALSHA", DIGEST, "0"])?;
        both.compare(&["SCRIPT", "LOAD", "return 1"])?;
        both.compare(&["SCRIPT", "EXISTS", DIGEST, "other"])?;
        both.compare(&["EVALSHA", &DIGEST.to_uppercase(), "0"])?;
        both.fake.forget_scripts();
        both.ask(0, &["SCRIPT", "FLUSH"]);
        both.compare(&["EVALSHA", DIGEST, "0"])?;
        let info = text(both.ask(0, &["INFO", "everything"]));
        for line in INFO.lines().filter(|line| !line.ends_with("RUN")) {
            assert!(info.contains(&format!("{line}\\r\\n")), "{line}: {info}");
        }
        Ok(())
    });
}

#[test]
fn scan_finds_the_same_keys_as_on_a_real_server() {
    const NAMES: [&str; 4] = ["a", "b", "*", "\\"];
    const PATTERNS: [&str; 6] = ["a", "b", "*", "?", "\\", "\\*"];
    with_server(Persistence::None, |mut both| {
        both.clear();
        for number in 0..64 {
            let key = [number, number / 4, number / 16].map(|byte| pick(&NAMES, byte)).concat();
            both.compare(&["SET", &key, "x"])?;
        }
        both.compare(&["HSET", "hash", "a", "b"])?;
        explore(100, 8, |parts: &[[u8; 1]]| {
            let pattern: String = parts.iter().map(|[byte]| pick(&PATTERNS, *byte)).collect();
            let scan = |cursor: &str, count| {
                encoded(&["SCAN", cursor, "MATCH", &pattern, "COUNT", count, "TYPE", "string"])
            };
            let real =
                both.ask(0, &["SCAN", "0", "MATCH", &pattern, "COUNT", "1000", "TYPE", "string"]);
            let (mut real, mut fake, mut cursor) = (scanned(real).1, Vec::new(), "0".to_owned());
            loop {
                let mut sent = both.fake.receive(0, &scan(&cursor, "7"), BEGIN);
                let (next, found) = scanned(sent.remove(0).1);
                fake.extend(found);
                cursor = next;
                if cursor == "0" {
                    break;
                }
            }
            real.sort();
            fake.sort();
            prop_assert_eq!(fake, real, "{}", pattern);
            Ok(())
        })
    });
}

/// Reads an answer to `SCAN`.
fn scanned(mut answer: Bytes) -> (String, Vec<Bytes>) {
    let begin = answer.iter().skip(1).position(|byte| *byte == b'*').unwrap() + 1;
    let cursor: String = answer.drain(..begin).map(char::from).collect();
    (cursor.lines().nth(2).unwrap().to_owned(), next_command(&mut answer).unwrap())
}

#[test]
fn a_command_may_arrive_in_parts_and_with_others() {
    let commands = [encoded(&["SET", "a", "1"]), encoded(&["GET", "a"])].concat();
    for at in 0..commands.len() {
        let mut redis = Redis::new(1);
        let mut sent = redis.receive(1, &commands[..at], BEGIN);
        sent.extend(redis.receive(1, &commands[at..], BEGIN));
        let sent = sent.into_iter().flat_map(|(_, bytes)| bytes).collect();
        assert_eq!(text(sent), "+OK\\r\\n$1\\r\\n1\\r\\n", "{at}");
    }
}

#[test]
fn a_restart_ends_connections_and_keeps_data_if_it_can() {
    for keeps_data in [false, true] {
        let mut redis = Redis::new(1);
        let send = |redis: &mut Redis, words: &[&str]| {
            let sent = redis.receive(1, &encoded(words), BEGIN);
            text(sent.into_iter().flat_map(|(_, bytes)| bytes).collect())
        };
        let waiter = "1:1:1:1:1700000020000000:c";
        let left =
            ["dlock:{0}:a (9000 ms): = 1", "dlock:{0}w:a (-1 ms): x 1:1:1:1:1700000020000000:c"];
        send(&mut redis, &["SET", "dlock:{0}:a", "1", "PX", "9000"]);
        send(&mut redis, &["HSET", "dlock:{0}w:a", "x", waiter]);
        send(&mut redis, &["SET", "dlock:{0}f:a", "7"]);
        send(&mut redis, &["SET", "dlock:{0}?guard:", "7"]);
        send(&mut redis, &["SUBSCRIBE", "c"]);
        assert_eq!(send(&mut redis, &["EVAL", "return 1", "0"]), ":1\\r\\n");
        assert_eq!(redis.left(BEGIN), left);
        assert_eq!(redis.left(BEGIN + 9_001_000), left[1..]);
        assert_eq!(redis.left(BEGIN + 21_000_000), [""; 0], "the waiter has expired");
        redis.receive(1, b"*1\r\n$4", BEGIN);
        redis.restart(2, keeps_data);
        assert!(
            send(&mut redis, &["INFO"]).contains("run_id:0000000000000000000000000000000000000002")
        );
        assert_eq!(send(&mut redis, &["PUBLISH", "c", "x"]), ":0\\r\\n");
        assert!(send(&mut redis, &["EVALSHA", &"0".repeat(40), "0"]).starts_with("-NOSCRIPT"));
        assert_eq!(redis.left(BEGIN), if keeps_data { &left[1..] } else { &[] });
    }
}

#[test]
fn a_closed_connection_receives_nothing() {
    let mut redis = Redis::new(1);
    for connection in [1, 2] {
        redis.receive(connection, &encoded(&["SUBSCRIBE", "c"]), BEGIN);
        redis.receive(connection, &encoded(&["SSUBSCRIBE", "c"]), BEGIN);
    }
    redis.closed(1);
    for publish in ["PUBLISH", "SPUBLISH"] {
        let sent = redis.receive(3, &encoded(&[publish, "c", "x"]), BEGIN);
        assert_eq!(sent.iter().map(|(to, _)| *to).collect::<Vec<_>>(), [2, 3]);
    }
}
