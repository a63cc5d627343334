//! Feeds [`setpoint_fuzz::label_selector::check`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| setpoint_fuzz::label_selector::check(input));
