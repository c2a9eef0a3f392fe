//! Whether a command line can be typed as it stands.

use std::{fs, path::Path, process::Command};

use dlock_tests::root;
use serde_json::Value;

/// The subcommands of `dlock` with their own options; `url`, `url-file` and
/// `connect-timeout` belong to all.
pub(crate) const SUBCOMMANDS: [(&str, &[&str]); 11] = [
    ("break", &["yes", "json"]),
    ("completions", &[]),
    ("doctor", &["strict", "token", "json"]),
    ("guarantees", &["json"]),
    ("help", &[]),
    ("inspect", &["json"]),
    ("list", &["limit", "json"]),
    ("man", &[]),
    ("raise-tokens", &["json"]),
    (
        "run",
        &[
            "name",
            "wait",
            "lease",
            "lock-delay",
            "shared",
            "semaphore",
            "kill-after",
            "busy-code",
            "keep-url",
            "foreground",
            "verbose",
            "json",
        ],
    ),
    ("watch", &["name", "interval", "count", "limit", "json"]),
];

/// Options of cargo that stand alone.
const ALONE: [&str; 7] = [
    "--release",
    "--locked",
    "--offline",
    "--all-features",
    "--no-default-features",
    "--all-targets",
    "--doc",
];

/// What cargo says of the packages here.
pub(crate) struct Workspace {
    packages: Vec<Value>,
    /// The source of each example, under its name.
    examples: Vec<(String, String)>,
}

impl Workspace {
    pub(crate) fn read(root: &Path) -> Self {
        let output = Command::new(env!("CARGO"))
            .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
            .current_dir(root)
            .output()
            .expect("cargo runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let read: Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
        let packages = read["packages"].as_array().expect("a list of packages").clone();
        let examples = packages.iter().flat_map(|package| targets(package, "example"));
        let examples = examples
            .map(|target| (text(&target["name"]), source(Path::new(&text(&target["src_path"])))))
            .collect();
        Self { packages, examples }
    }

    /// The names of all examples.
    pub(crate) fn examples(&self) -> impl Iterator<Item = &str> {
        self.examples.iter().map(|(name, _)| name.as_str())
    }

    fn package(&self, name: &str) -> Option<&Value> {
        self.packages.iter().find(|package| package["name"] == name)
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn targets<'a>(package: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    let all = package["targets"].as_array().map_or(&[][..], Vec::as_slice);
    all.iter().filter(move |target| {
        target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|one| one == kind))
    })
}

/// A program's files, one behind the other, and what all examples share.
fn source(main: &Path) -> String {
    let folder = main.parent().expect("a file is in a folder");
    let mut files = vec![main.to_owned()];
    if main.ends_with("main.rs") {
        files =
            fs::read_dir(folder).expect("it can be listed").flatten().map(|f| f.path()).collect();
    }
    files.push(root().join("examples/given/mod.rs"));
    files.iter().map(|file| fs::read_to_string(file).unwrap_or_default()).collect()
}

/// What is wrong with a command, if anything is. Commands of others are right.
pub(crate) fn complaint(workspace: &Workspace, line: &str) -> Option<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    words.split(|word| ["|", "&&", ";"].contains(word)).find_map(|command| {
        let is_setting = |word: &&&str| word.contains('=') && !word.starts_with('-');
        let settings = command.iter().take_while(is_setting).count();
        match &command[settings..] {
            ["cargo", verb @ ("run" | "test"), arguments @ ..] => {
                cargo(workspace, verb, arguments).err()
            }
            ["dlock", arguments @ ..] => dlock(arguments).err(),
            _ => None,
        }
    })
}

fn cargo(workspace: &Workspace, verb: &str, arguments: &[&str]) -> Result<(), String> {
    let (mut package, mut features, mut target) = ("dlock", Vec::new(), None);
    let (mut all_features, mut default) = (false, true);
    let mut words = arguments.iter();
    let mut own: &[&str] = &[];
    while let Some(word) = words.next() {
        let mut value = || words.next().copied().ok_or(format!("nothing behind {word}"));
        match *word {
            "-p" | "--package" => package = value()?,
            "--features" => features = value()?.split(',').collect(),
            "--example" => target = Some(("example", value()?)),
            "--test" => target = Some(("test", value()?)),
            "--bin" => target = Some(("bin", value()?)),
            "--" => {
                own = words.as_slice();
                break;
            }
            alone if ALONE.contains(&alone) => {
                all_features |= alone == "--all-features";
                default &= alone != "--no-default-features";
            }
            filter if verb == "test" && !filter.starts_with('-') => {}
            other => return Err(format!("cargo {verb} is not known here to take {other}")),
        }
    }
    let found = workspace.package(package).ok_or(format!("no package {package}"))?;
    let unknown = features.iter().find(|feature| found["features"].get(feature).is_none());
    if let Some(feature) = unknown {
        return Err(format!("{package} has no feature {feature}"));
    }
    let Some((kind, name)) = target else { return Ok(()) };
    let target = targets(found, kind).find(|target| target["name"] == name);
    let target = target.ok_or(format!("{package} has no {kind} {name}"))?;
    let needed = target["required-features"].as_array().map_or(&[][..], Vec::as_slice);
    let on = enabled(found, &features, default);
    let is_on = |need: &&Value| on.iter().any(|feature| *need == feature);
    if let Some(need) = needed.iter().find(|need| !all_features && !is_on(need)) {
        return Err(format!("{name} needs the feature {need}"));
    }
    let source =
        workspace.examples.iter().find(|(example, _)| kind == "example" && example == name);
    let options = own.iter().filter_map(|word| word.strip_prefix("--"));
    match options
        .zip(source.into_iter().cycle())
        .find(|(option, (_, source))| !source.contains(&format!("\"{option}\"")))
    {
        Some((option, _)) => Err(format!("{name} has no option --{option}")),
        None => Ok(()),
    }
}

/// These features and those that they turn on.
fn enabled(package: &Value, features: &[&str], default: bool) -> Vec<String> {
    let mut on: Vec<String> = features.iter().map(|feature| (*feature).to_owned()).collect();
    on.extend(default.then(|| "default".to_owned()));
    let mut at = 0;
    while let Some(feature) = on.get(at) {
        let more = package["features"][feature].as_array().map_or(&[][..], Vec::as_slice);
        let new: Vec<_> = more.iter().map(text).filter(|name| !on.contains(name)).collect();
        on.extend(new);
        at += 1;
    }
    on
}

fn dlock(arguments: &[&str]) -> Result<(), String> {
    let [subcommand, rest @ ..] = arguments else { return Err("no subcommand".to_owned()) };
    let known = SUBCOMMANDS.iter().find(|(name, _)| name == subcommand);
    let (_, options) = known.ok_or(format!("dlock has no subcommand {subcommand}"))?;
    let own = rest.iter().take_while(|word| **word != "--");
    let mut given = own.filter_map(|word| word.strip_prefix("--"));
    let is_known = |option: &&str| {
        ["url", "url-file", "connect-timeout", "help"].contains(option) || options.contains(option)
    };
    match given.find(|option| !is_known(option)) {
        Some(option) => Err(format!("dlock {subcommand} has no option --{option}")),
        None => Ok(()),
    }
}
