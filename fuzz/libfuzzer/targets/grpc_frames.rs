//! Feeds [`setpoint_fuzz::grpc_frames::check`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| setpoint_fuzz::grpc_frames::check(input));
