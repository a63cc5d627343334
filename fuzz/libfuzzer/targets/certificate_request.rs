//! Feeds [`setpoint_fuzz::certificate_request::check`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| setpoint_fuzz::certificate_request::check(input));
