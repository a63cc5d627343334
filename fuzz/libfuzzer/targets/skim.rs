//! Feeds [`setpoint_fuzz::skim::check`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| setpoint_fuzz::skim::check(input));
