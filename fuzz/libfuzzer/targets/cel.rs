//! Feeds [`setpoint_fuzz::cel::check`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| setpoint_fuzz::cel::check(input));
