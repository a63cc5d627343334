//! Feeds [`setpoint_fuzz::apply::check`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| setpoint_fuzz::apply::check(input));
