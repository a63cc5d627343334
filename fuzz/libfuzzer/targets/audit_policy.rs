//! Feeds [`setpoint_fuzz::audit_policy::check`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| setpoint_fuzz::audit_policy::check(input));
