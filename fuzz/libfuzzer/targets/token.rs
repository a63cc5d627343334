//! Feeds [`setpoint_fuzz::token::check`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| setpoint_fuzz::token::check(input));
