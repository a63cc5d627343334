//! Feeds [`setpoint_fuzz::protobuf::check`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| setpoint_fuzz::protobuf::check(input));
