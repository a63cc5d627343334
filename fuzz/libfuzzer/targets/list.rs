//! Feeds [`setpoint_fuzz::list::check`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| setpoint_fuzz::list::check(input));
