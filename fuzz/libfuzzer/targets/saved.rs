//! Feeds [`setpoint_fuzz::saved::check`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| setpoint_fuzz::saved::check(input));
