//! Feeds [`setpoint_fuzz::patch::check`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| setpoint_fuzz::patch::check(input));
