//! Feeds [`setpoint_fuzz::json_path::check`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| setpoint_fuzz::json_path::check(input));
