//! Feeds [`setpoint_fuzz::traceparent::check`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| setpoint_fuzz::traceparent::check(input));
