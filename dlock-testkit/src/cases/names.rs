//! Names: any text, compared byte by byte, and no two names collide.

use std::collections::BTreeSet;

use dlock_core::{ConfigIssue, Error, ErrorKind, LockName};

use crate::{
    Stop, Verdict,
    case::Cx,
    stop::{ensure, ensure_eq, ensure_safe},
};

/// Names that stores have been known to fold, truncate, split or execute.
#[rustfmt::skip]
pub(crate) const HOSTILE: &[&str] = &[
    "job", "Job", "JOB", "job ", " job", "  job", "job\u{a0}", "job.", "job/", "/job", "//job",
    "jo\u{308}b", "j\u{f6}b", "jöb ", "ｊｏｂ", "j\u{200d}ob", "\u{202e}boj", "ß", "ss", "ẞ", "i", "ı", "İ", "I",
    "/", "//", ".", "..", "../job", "./job", "a/b", "a/b/", "a//b", "a/./b", "a\\b", "a:b", "a::b", "C:job",
    "{job}", "{job", "job}", "}job{", "{}job", "{}", "{a}b", "{a}c", "%", "%25", "%2F", "%2f", "a%2Fb", "_", "a_b", "a%b",
    "'", "''", "\"", "`", "';DROP TABLE dlock_lock;--", "$(reboot)", "`reboot`", "${HOME}", "$1", "?", "?1", ":name", "@name",
    "*", "[a]", "[ab]", "^", "~", "#", "# ", "&", "|", ">", "<", "a=b", "a,b", "a;b", "a b", "a+b", "(", ")", "]]", "--",
    "0", "00", "-0", "1e3", "0x10", "null", "NULL", "nil", "true", "undefined", "-lock-0000000001", "a-read-0000000001",
    "🔒", "🔓", "👩\u{200d}👩", "👩👩", "\u{10ffff}", "\u{fffd}", "\u{feff}", "\u{feff}job", "日本", "語", "مرحبا",
];

pub(crate) async fn hostile_names_are_all_different(cx: Cx) -> Verdict {
    all_different(&cx, HOSTILE.iter().map(|name| (*name).to_owned()).collect()).await
}

pub(crate) async fn long_names_are_not_cut(cx: Cx) -> Verdict {
    let of = |text: &str, last: &str| {
        let times = (LockName::MAX_BYTES - last.len()) / text.len();
        format!("{}{last}", text.repeat(times))
    };
    let mut names = vec![of("x", "a"), of("x", "b"), of("x", ""), of("🔒", ""), of("🔒", "🔓")];
    names.push(of("/", "a"));
    names.push(of("%", "a"));
    names.push(of("é", "e"));
    for length in [63, 64, 127, 128, 191, 192, 254, 255, 256, 511] {
        names.push("y".repeat(length));
    }
    all_different(&cx, names).await
}

pub(crate) async fn random_names_do_not_meet(cx: Cx) -> Verdict {
    let alphabet: Vec<char> = "aAbB01/.%{}' é🔒-_\\:".chars().collect();
    let mut names = BTreeSet::new();
    for _ in 0..cx.effort(60) {
        let length = rand::random_range(1..6);
        let any = || alphabet[rand::random_range(0..alphabet.len())];
        let text: String = (0..length).map(|_| any()).collect();
        names.insert(format!("random {text}"));
    }
    all_different(&cx, names.into_iter().collect()).await
}

/// Holds locks of all these names at the same time, and checks with another client that they
/// differ.
async fn all_different(cx: &Cx, names: Vec<String>) -> Verdict {
    let (a, b) = (cx.locks().await?, cx.locks().await?);
    let mut guards = Vec::new();
    for text in &names {
        let name = cx.literal(text)?;
        let guard = a.mutex(&name)?.try_lock().await?;
        guards.push(guard.ok_or(format!("{text:?} is another name's lock"))?);
    }
    for guard in guards {
        let name = guard.name().clone();
        ensure_safe!(b.mutex(&name)?.try_lock().await?.is_none(), "{name:?} is free");
        let state = b.inspect(&name).await?;
        ensure_eq!(state.holders.first().and_then(|h| h.token), Some(guard.token()), "{name:?}");
        guard.check()?;
        guard.release().await?;
        b.mutex(&name)?.try_lock().await?.ok_or(format!("{name:?} is held"))?.release().await?;
    }
    Ok(())
}

pub(crate) async fn names_that_can_not_be_are_refused(cx: Cx) -> Verdict {
    let locks = cx.locks().await?;
    let long = "x".repeat(LockName::MAX_BYTES + 1);
    let huge = "x".repeat(1 << 20);
    for bad in ["", &long, &huge, "a\0b", "\n", "a\r\nb", "\u{7f}", "\u{85}", "\u{1b}[31m"] {
        let refused = [
            locks.mutex(bad).err(),
            locks.fair(bad).err().filter(|e| e.kind() != ErrorKind::Unsupported),
            locks.reentrant(bad).err(),
            locks.rw(bad).err(),
            locks.multi([bad]).err(),
            locks.inspect(bad).await.err(),
        ];
        for error in refused {
            is_about_the_name(bad, error)?;
        }
    }
    Ok(())
}

#[track_caller]
fn is_about_the_name(name: &str, error: Option<Error>) -> Verdict {
    let error = error.ok_or_else(|| Stop::failed(format!("{name:.40?} is accepted")))?;
    ensure_eq!(error.kind(), ErrorKind::Config(ConfigIssue::Name), "{error}");
    ensure!(error.to_string().len() < 1000, "the error repeats a huge name");
    Ok(())
}
