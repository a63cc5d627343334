//! Feeds [`setpoint_fuzz::cron::check`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| setpoint_fuzz::cron::check(input));
