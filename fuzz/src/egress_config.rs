//! Configurations of egress selectors.
use setpoint_egress::EgressConfig;

/// Any bytes are a configuration, or refused; the same each time.
pub fn check(input: &[u8]) {
    let read = || EgressConfig::parse(input).map_err(|error| error.to_string());
    assert_eq!(read(), read());
}
