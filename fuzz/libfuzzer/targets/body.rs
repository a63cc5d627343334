//! Feeds [`setpoint_fuzz::body::check`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| setpoint_fuzz::body::check(input));
