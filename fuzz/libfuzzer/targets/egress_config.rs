//! Feeds [`setpoint_fuzz::egress_config::check`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| setpoint_fuzz::egress_config::check(input));
