//! Feeds [`setpoint_fuzz::encryption::check`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| setpoint_fuzz::encryption::check(input));
