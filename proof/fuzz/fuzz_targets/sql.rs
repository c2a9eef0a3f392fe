#![no_main]

use dlock_sql::fuzzing::{
    error, log_end, mysql_names, mysql_url, notification, postgres_literal, postgres_url,
    sqlite_json, sqlite_url,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| dlock_fuzz::check(
    &[
        error,
        sqlite_url,
        sqlite_json,
        mysql_url,
        mysql_names,
        log_end,
        postgres_url,
        postgres_literal,
        notification
    ],
    data
));
