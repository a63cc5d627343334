//! Feeds [`setpoint_fuzz::webhook_answer::check`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| setpoint_fuzz::webhook_answer::check(input));
