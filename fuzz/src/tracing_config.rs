//! Files that configure tracing.
use setpoint_otlp::TracingConfig;

/// Any bytes are a configuration, the same one each time, or are refused with a reason.
pub fn check(input: &[u8]) {
    match TracingConfig::parse(input) {
        Ok(config) => {
            let again = TracingConfig::parse(input).unwrap();
            assert_eq!(format!("{config:?}"), format!("{again:?}"));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
