//! Feeds [`setpoint_fuzz::admission::check`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| setpoint_fuzz::admission::check(input));
