//! Feeds [`setpoint_fuzz::pattern::check`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| setpoint_fuzz::pattern::check(input));
