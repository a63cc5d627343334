//! Feeds [`setpoint_fuzz::frames::check`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| setpoint_fuzz::frames::check(input));
