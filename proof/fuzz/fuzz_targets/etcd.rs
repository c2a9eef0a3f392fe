#![no_main]

use dlock_etcd::fuzzing::{key, queue, record, url, url_password};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| dlock_fuzz::check(&[url, url_password, key, record, queue], data));
