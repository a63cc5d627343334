//! Feeds [`setpoint_fuzz::request_header::check`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| setpoint_fuzz::request_header::check(input));
