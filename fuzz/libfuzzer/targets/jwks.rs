//! Feeds [`setpoint_fuzz::jwks::check`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| setpoint_fuzz::jwks::check(input));
