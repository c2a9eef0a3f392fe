//! The conformance suite on etcd, in its two settings: one server, and an ensemble of three.

#[path = "conformance/setting.rs"]
mod setting;

use setting::Setting;

fn main() {
    dlock_testkit::run_each(vec![Box::new(Setting::Single), Box::new(Setting::Ensemble)])
}
