//! Feeds [`setpoint_fuzz::shard_selector::check`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| setpoint_fuzz::shard_selector::check(input));
