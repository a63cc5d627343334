//! Feeds [`setpoint_fuzz::review::check`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| setpoint_fuzz::review::check(input));
