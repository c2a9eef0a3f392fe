//! The scripts of the server, which Lua runs as Redis 7.0 does.
//!
//! A script sees the data only through `redis.call` and `redis.pcall`, and nothing else that differs
//! from run to run: no clock but `TIME`, no random numbers, no files (see `environment.lua`).
//!
//! The text of an error shows where in the script it was raised. So both functions are functions of
//! Lua's C interface, as on a real server: a wrapper in Lua would change the place.

use std::{cell::RefCell, collections::BTreeMap, error, fmt, iter, rc::Rc};

use mlua::{
    Error, ExternalError, Function, Lua, LuaOptions, MultiValue, Result, StdLib, Table,
    Value as LuaValue,
};

use super::{
    data::{Data, integer},
    resp::{Bytes, Value, number_text},
};

const ENVIRONMENT: &str = include_str!("environment.lua");
const NO_SCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";

/// The Lua state, and the scripts that it has loaded.
pub(super) struct Scripts {
    lua: Lua,
    environment: Table,
    /// The table in which the environment finds the globals.
    globals: Table,
    xpcall: Function,
    on_error: Function,
    /// By digest.
    loaded: BTreeMap<String, Function>,
    /// Texts in scripts that are replaced, as deliberate mistakes.
    pub(super) patches: &'static [(&'static str, &'static str)],
}

impl Scripts {
    pub(super) fn new(data: &Rc<RefCell<Data>>) -> Self {
        Self::prepare(data).expect("the environment of scripts can be prepared")
    }

    fn prepare(data: &Rc<RefCell<Data>>) -> Result<Self> {
        let libraries = StdLib::STRING | StdLib::TABLE | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::new().catch_rust_panics(false))?;
        let (for_call, for_pcall) = (Rc::clone(data), Rc::clone(data));
        let call = lua.create_function(move |lua, words: MultiValue| {
            match run_command(&for_call, &words) {
                Value::Error(text) => Err(Refusal(text).into_lua_err()),
                answer => to_lua(lua, answer),
            }
        })?;
        let pcall = lua.create_function(move |lua, words: MultiValue| {
            to_lua(lua, run_command(&for_pcall, &words))
        })?;
        let text_of =
            lua.create_function(|lua, error: LuaValue| lua.create_string(text_of(&error)))?;
        let (environment, globals) =
            lua.load(ENVIRONMENT).set_name("=environment").call((call, pcall, text_of))?;
        let (xpcall, on_error) = (lua.globals().get("xpcall")?, lua.create_function(located)?);
        let loaded = BTreeMap::new();
        Ok(Self { lua, environment, globals, xpcall, on_error, loaded, patches: &[] })
    }

    pub(super) fn with_patches(self, patches: &'static [(&'static str, &'static str)]) -> Self {
        Self { patches, ..self }
    }

    #[cfg(dlock_sim)]
    pub(super) fn forget(&mut self) {
        self.loaded.clear();
    }

    /// `EVAL text keys [key ...] [argument ...]`.
    pub(super) fn eval(&mut self, words: &[Bytes]) -> Value {
        let digest = self.load(&words[1]);
        self.run(&digest, &words[2..])
    }

    /// `EVALSHA digest keys [key ...] [argument ...]`.
    pub(super) fn eval_by_digest(&mut self, words: &[Bytes]) -> Value {
        self.run(&String::from_utf8_lossy(&words[1]), &words[2..])
    }

    /// Returns the digest.
    pub(super) fn load(&mut self, text: &[u8]) -> String {
        let digest = sha1_smol::Sha1::from(text).digest().to_string();
        if !self.loaded.contains_key(&digest) {
            let patched = self.patches.iter().fold(text.to_vec(), |text, (from, to)| {
                String::from_utf8_lossy(&text).replace(from, to).into_bytes()
            });
            let chunk = self.lua.load(patched).set_name("@user_script");
            let script = chunk.set_environment(self.environment.clone()).into_function();
            self.loaded.insert(digest.clone(), script.expect("a script can be compiled"));
        }
        digest
    }

    /// Runs a script with these words: the number of its keys, the keys, and its arguments.
    fn run(&self, digest: &str, words: &[Bytes]) -> Value {
        let Some(script) = self.loaded.get(digest) else { return Value::error(NO_SCRIPT) };
        let keys = usize::try_from(integer(&words[0])).expect("it is the number of the keys");
        let (keys, arguments) = words[1..].split_at(keys);
        self.try_run(script, digest, keys, arguments)
            .expect("a script ends with an answer or with an error")
    }

    fn try_run(
        &self,
        script: &Function,
        digest: &str,
        keys: &[Bytes],
        arguments: &[Bytes],
    ) -> Result<Value> {
        for (name, words) in [("KEYS", keys), ("ARGV", arguments)] {
            let words: Vec<_> =
                words.iter().map(|word| self.lua.create_string(word)).collect::<Result<_>>()?;
            self.globals.raw_set(name, words)?;
        }
        let (done, answer): (bool, LuaValue) =
            self.xpcall.call((script.clone(), self.on_error.clone()))?;
        if done {
            return from_lua(&answer);
        }
        let LuaValue::Table(error) = &answer else { return Ok(Value::Error(text_of(&answer))) };
        let (mut text, place) = (text_of(&answer), error.raw_get::<Option<String>>("place")?);
        if let Some(place) = place {
            text.extend_from_slice(format!(" script: {digest}, on {place}.").as_bytes());
        }
        Ok(Value::Error(text))
    }
}

/// An error of `redis.call`, which ends the script unless it is caught.
#[derive(Debug)]
struct Refusal(Bytes);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl error::Error for Refusal {}

/// Executes a command of a script.
fn run_command(data: &RefCell<Data>, words: &MultiValue) -> Value {
    let word = |word: &LuaValue| match word {
        LuaValue::String(text) => Some(text.as_bytes().to_vec()),
        other => number(other).map(|number| number_text(number).into_bytes()),
    };
    let words = words.iter().map(word).collect::<Option<Vec<_>>>();
    data.borrow_mut().run(&words.expect("a command consists of texts and numbers"))
}

/// Returns the table of an error with its text, and with the place in the script where it was
/// raised.
fn located(lua: &Lua, error: LuaValue) -> Result<Table> {
    let place = |level| {
        lua.inspect_stack(level, |frame| {
            let source = frame.source();
            let text = source.source.unwrap_or_default();
            // Neither this function nor the one that raises an error is a place.
            (source.what != "C" && text != "=environment").then(|| {
                let line = frame.current_line().map_or("-1".to_owned(), |line| line.to_string());
                format!("{text}:{line}")
            })
        })
    };
    let table = lua.create_table()?;
    table.raw_set("err", lua.create_string(text_of(&error))?)?;
    table.raw_set("place", (1..).map_while(place).flatten().next())?;
    Ok(table)
}

/// Returns the text of an error with its code.
fn text_of(error: &LuaValue) -> Bytes {
    let with_code = |text: &[u8]| [b"ERR ", text].concat();
    match error {
        LuaValue::Error(error) => {
            let innermost = iter::successors(Some(&**error), |error| match error {
                Error::CallbackError { cause, .. } => Some(&**cause),
                _ => None,
            });
            let refusal = innermost.filter_map(Error::downcast_ref::<Refusal>).next();
            refusal.map_or_else(|| with_code(error.to_string().as_bytes()), |it| it.0.clone())
        }
        LuaValue::Table(table) => match table.raw_get("err") {
            Ok(LuaValue::String(text)) => text.as_bytes().to_vec(),
            _ => with_code(b"unknown error"),
        },
        other => with_code(other.to_string().unwrap_or_default().as_bytes()),
    }
}

/// Returns a number of Lua, which has one type for all of them.
#[expect(clippy::cast_precision_loss, reason = "these integers come from numbers of this type")]
fn number(value: &LuaValue) -> Option<f64> {
    match value {
        LuaValue::Integer(number) => Some(*number as f64),
        LuaValue::Number(number) => Some(*number),
        _ => None,
    }
}

/// Returns an answer as `redis.call` has it.
#[expect(clippy::cast_precision_loss, reason = "as on a real server")]
fn to_lua(lua: &Lua, answer: Value) -> Result<LuaValue> {
    let text = |text: &[u8]| lua.create_string(text).map(LuaValue::String);
    let field = |name: &str, value: &[u8]| {
        let table = lua.create_table()?;
        table.raw_set(name, text(value)?)?;
        Ok(LuaValue::Table(table))
    };
    match answer {
        Value::Null => Ok(LuaValue::Boolean(false)),
        Value::Integer(number) => Ok(LuaValue::Number(number as f64)),
        Value::Text(bytes) => text(&bytes),
        Value::Score(score) => text(number_text(score).as_bytes()),
        Value::Status(status) => field("ok", &status),
        Value::Error(error) => field("err", &error),
        Value::Array(values) => {
            let values: Vec<_> =
                values.into_iter().map(|value| to_lua(lua, value)).collect::<Result<_>>()?;
            lua.create_sequence_from(values).map(LuaValue::Table)
        }
        Value::Scored(members) => {
            let flat = members
                .into_iter()
                .flat_map(|(score, name)| [Value::Text(name), Value::Score(score)]);
            to_lua(lua, Value::Array(flat.collect()))
        }
        // No command of a script has such an answer.
        Value::Verbatim(_) | Value::Map(_) | Value::Push(_) => Ok(LuaValue::Nil),
    }
}

/// Returns the answer of a script.
fn from_lua(answer: &LuaValue) -> Result<Value> {
    Ok(match answer {
        LuaValue::Boolean(true) => Value::Integer(1),
        LuaValue::String(text) => Value::text(text.as_bytes()),
        LuaValue::Table(table) => {
            if let LuaValue::String(text) = table.raw_get("err")? {
                return Ok(Value::error(text.as_bytes()));
            }
            if let LuaValue::String(text) = table.raw_get("ok")? {
                return Ok(Value::Status(text.as_bytes().to_vec()));
            }
            // A list ends at its first nil.
            Value::Array(
                table
                    .sequence_values::<LuaValue>()
                    .map(|value| from_lua(&value?))
                    .collect::<Result<_>>()?,
            )
        }
        other => number(other).map_or(Value::Null, |number| Value::Integer(truncated(number))),
    })
}

/// Returns a number without its fraction, and any that is too large as the smallest, as a
/// conversion of the processor does.
#[expect(clippy::cast_possible_truncation, reason = "it is checked")]
fn truncated(number: f64) -> i64 {
    const END: f64 = 9_223_372_036_854_775_808.0;
    if (-END..END).contains(&number) { number as i64 } else { i64::MIN }
}
