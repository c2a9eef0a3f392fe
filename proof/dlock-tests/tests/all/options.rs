//! The options of URLs and the series of metrics are API: golden files have them.

use dlock_tests::golden;
use metrics_util::debugging::DebuggingRecorder;

/// Returns the `dlock.*` options of a scheme. They are read from the error about an unknown option,
/// which lists those of the store and those of all stores. It uses the same tables as the check of
/// a URL.
async fn options(scheme: &str) -> Vec<String> {
    // The options are checked before any connection is opened.
    let error = dlock::connect(&format!("{scheme}://u@host/x?dlock.nope=1")).await;
    let error = error.expect_err("an unknown option").to_string();
    let known = error.split_once("use one of ").expect("the options that are known").1;
    let mut options: Vec<_> = known.split(", ").map(str::to_owned).collect();
    assert!(options.iter().all(|option| option.starts_with("dlock.")), "{error}");
    options.sort();
    options
}

#[tokio::test]
async fn url_options_are_those_of_the_golden_file() {
    let mut text = String::new();
    for scheme in dlock::backend::registry().schemes() {
        for option in options(scheme).await {
            text += &format!("{scheme}: {option}\n");
        }
    }
    assert!(text.contains("zks: dlock.session_timeout\n"), "{text}");
    golden("url-options.txt", &text);
}

#[tokio::test]
async fn metrics_are_those_of_the_golden_file() {
    let recorder = DebuggingRecorder::new();
    let _guard = metrics::set_default_local_recorder(&recorder);
    // All series exist from the beginning.
    let _locks = dlock::connect("memory:").await.expect("a store in memory");
    let series = recorder.snapshotter().snapshot().into_vec();
    let mut lines: Vec<_> = series
        .into_iter()
        .map(|(key, unit, _, _)| {
            let kind = format!("{:?}", key.kind()).to_lowercase();
            let unit = unit.map_or("", |unit| unit.as_str());
            let labels = key.key().labels();
            let labels: Vec<_> = labels.map(|l| format!("{}={}", l.key(), l.value())).collect();
            format!("{kind} {}{{{}}} {unit}\n", key.key().name(), labels.join(","))
        })
        .collect();
    lines.sort();
    assert!(lines.len() > 50, "{lines:#?}");
    golden("metrics.txt", &lines.concat());
}
