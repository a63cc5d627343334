//! Feeds [`setpoint_fuzz::field_set::check`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| setpoint_fuzz::field_set::check(input));
