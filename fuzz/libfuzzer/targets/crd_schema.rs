//! Feeds [`setpoint_fuzz::crd_schema::check`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| setpoint_fuzz::crd_schema::check(input));
