//! Feeds [`setpoint_fuzz::resource_version::check`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| setpoint_fuzz::resource_version::check(input));
