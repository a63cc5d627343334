//! Feeds [`setpoint_fuzz::policy::check`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| setpoint_fuzz::policy::check(input));
