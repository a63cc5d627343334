//! Authentication configurations.
use setpoint_oidc::AuthenticationConfig;

/// Any bytes are a configuration, valid or not, or refused; the same each time.
pub fn check(input: &[u8]) {
    let read = || {
        let config = AuthenticationConfig::parse(input).map_err(|error| error.to_string())?;
        config.validate(&["https://own".to_owned()]).map_err(|error| error.to_string())
    };
    assert_eq!(read(), read());
}
