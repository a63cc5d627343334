//! Feeds [`setpoint_fuzz::quantity::check`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| setpoint_fuzz::quantity::check(input));
