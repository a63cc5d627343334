//! Feeds [`setpoint_fuzz::cbor::check`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| setpoint_fuzz::cbor::check(input));
